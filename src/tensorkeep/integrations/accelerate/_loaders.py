"""Where data loaders are: the epoch, the order in which they shuffle, their random generators."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import accelerate
import msgspec
import torch
from accelerate.data_loader import SeedableRandomSampler
from accelerate.state import GradientState
from torch.utils.data import BatchSampler, RandomSampler

from tensorkeep.errors import StateDictMismatchError

_WHOLE: Final = "_tensorkeep_whole"
"""Attribute of a loader for the rest of an epoch: the loader that it is the rest of."""


class Seeding(msgspec.Struct, frozen=True):
    """What decides on the order of a seedable sampler.

    Attributes:
        epoch: The epoch that it is in.
        initial_seed: The seed of epoch 0; that of the others are the numbers after it.
    """

    epoch: int
    initial_seed: int


class Place(msgspec.Struct, frozen=True):
    """Where a data loader is.

    Attributes:
        epoch: The epoch that it is in, or begins next.
        seeding: What decides on the order in it; None where that is no seedable sampler.
    """

    epoch: int
    seeding: Seeding | None = None


def place_of(loader: Any) -> Place:
    """Return the epoch in which a loader is, and what decides on the order in it.

    An epoch whose last batch is in use is over.
    """
    is_over = any(running.end_of_dataloader for running in _running(loader))
    sampler = _sampler(loader)
    is_seedable = isinstance(sampler, SeedableRandomSampler)
    seeding = Seeding(sampler.epoch, sampler.initial_seed) if is_seedable else None
    return Place(getattr(loader, "iteration", 0) + is_over, seeding)


def is_order_lost(loader: Any) -> bool:
    """Say whether a loader is amid an epoch in an order that nobody knows any more."""
    sampler = _sampler(loader)
    shuffles = isinstance(sampler, RandomSampler) and not isinstance(sampler, SeedableRandomSampler)
    is_amid = any(not running.end_of_dataloader for running in _running(loader))
    keeps_it = hasattr(sampler, "state_dict") and getattr(loader, "use_stateful_dataloader", False)
    return shuffles and is_amid and not keeps_it


def _running(loader: Any) -> Iterator[Any]:
    """Give the loader itself if batches of it are being used, and what gives the rest of its epoch."""
    for running in GradientState().dataloader_references:
        if running is not None and _whole(running) is loader:
            yield running


def _whole(loader: Any) -> Any:
    return vars(loader).get(_WHOLE, loader)


def prepare_places(loaders: Sequence[Any], places: Sequence[Place]) -> Iterator[Callable[[], None]]:
    """Give what brings loaders to the epochs in which others were; nothing is changed before it is called."""
    if len(loaders) != len(places):
        raise StateDictMismatchError(
            "the checkpoint is of a run with other data loaders",
            expected=f"{len(loaders)} that were prepared",
            found=str(len(places)),
            hint="Nothing was changed",
        )
    for number, (loader, place) in enumerate(zip(loaders, places, strict=True)):
        sampler = _sampler(loader)
        is_seedable = isinstance(sampler, SeedableRandomSampler)
        if is_seedable != (place.seeding is not None):
            raise StateDictMismatchError(
                f"data loader {number} shuffled in another way",
                expected=f"use_seedable_sampler={is_seedable}",
                found=f"use_seedable_sampler={not is_seedable}",
                hint="Nothing was changed",
            )
        yield _action(loader, sampler, place)


def _action(loader: Any, sampler: Any, place: Place) -> Callable[[], None]:
    def act() -> None:
        loader.iteration = place.epoch
        if place.seeding is not None:
            sampler.epoch, sampler.initial_seed = place.seeding.epoch, place.seeding.initial_seed

    return act


def generators_of(loaders: Sequence[Any]) -> dict[str, torch.Generator]:
    """Return the random generators that loaders shuffle with, by the loader's number and what has it.

    Those of seedable samplers are left out: they begin anew in each epoch.
    """
    found: dict[str, torch.Generator] = {}
    for number, loader in enumerate(loaders):
        sampler = _sampler(loader)
        owners = {"loader": loader, "dataset": loader.dataset}
        if not isinstance(sampler, SeedableRandomSampler):
            owners["sampler"] = sampler
        for owner, value in owners.items():
            generator = getattr(value, "generator", None)
            if isinstance(generator, torch.Generator):
                found[f"{number}.{owner}"] = generator
    return found


def stateful(loaders: Sequence[Any]) -> dict[str, Any]:
    """Return those loaders that keep their place themselves (`use_stateful_dataloader`), by number."""
    return {str(n): loader for n, loader in enumerate(loaders) if getattr(loader, "use_stateful_dataloader", False)}


def skip_first_batches(accelerator: Any, dataloader: Any, num_batches: int = 0) -> Any:  # noqa: ARG001 - a method
    """Return a loader for the rest of an epoch, as accelerate's method does, that leaves no trace of its beginning.

    It draws nothing from the random generator that everybody has, since the epoch that it goes on with has done that
    before; and when it is at its end, the loader itself goes on with the next epoch, in another order.
    """
    rest = accelerate.skip_first_batches(dataloader, num_batches)
    if num_batches:
        generator = torch.Generator()
        generator.set_state(torch.get_rng_state())
        getattr(rest, "base_dataloader", rest).generator = generator
    if hasattr(dataloader, "iteration") and hasattr(rest, "end"):
        _end_together(rest, _whole(dataloader))
    return rest


def _end_together(rest: Any, whole: Any) -> None:
    end = rest.end

    def end_both() -> None:
        end()
        whole.iteration = rest.iteration

    rest.end = end_both
    vars(rest)[_WHOLE] = whole


def _sampler(loader: Any) -> Any:
    """Return what decides on the order, None for loaders of iterable data sets."""
    is_of_batches = isinstance(loader.sampler, BatchSampler)
    batches = loader.sampler if is_of_batches else loader.batch_sampler
    while hasattr(batches, "batch_sampler"):  # the share of a process in the batches of all
        batches = batches.batch_sampler
    return getattr(batches, "sampler", None)

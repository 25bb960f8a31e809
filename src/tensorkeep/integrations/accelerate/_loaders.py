"""The positions of data loaders: their epochs, the order in which they shuffle, their random generators."""

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
"""Attribute of a loader for the rest of an epoch: the loader for the whole epoch."""


class Seeding(msgspec.Struct, frozen=True):
    """The state of a seedable sampler, which determines its order.

    Attributes:
        epoch: Its current epoch.
        initial_seed: The seed of epoch 0; each later epoch adds 1.
    """

    epoch: int
    initial_seed: int


class Place(msgspec.Struct, frozen=True):
    """The position of a data loader.

    Attributes:
        epoch: The current epoch, or the next one if none is running.
        seeding: The state of its seedable sampler, or None if it has another sampler.
    """

    epoch: int
    seeding: Seeding | None = None


def place_of(loader: Any) -> Place:
    """Return the position of a loader; an epoch whose last batch is in use counts as finished."""
    is_over = any(running.end_of_dataloader for running in _running(loader))
    sampler = _sampler(loader)
    is_seedable = isinstance(sampler, SeedableRandomSampler)
    seeding = Seeding(sampler.epoch, sampler.initial_seed) if is_seedable else None
    return Place(getattr(loader, "iteration", 0) + is_over, seeding)


def is_order_lost(loader: Any) -> bool:
    """Say whether a loader is in the middle of an epoch whose order cannot be reproduced."""
    sampler = _sampler(loader)
    shuffles = isinstance(sampler, RandomSampler) and not isinstance(sampler, SeedableRandomSampler)
    is_running = any(not running.end_of_dataloader for running in _running(loader))
    is_saved = hasattr(sampler, "state_dict") and getattr(loader, "use_stateful_dataloader", False)
    return shuffles and is_running and not is_saved


def _running(loader: Any) -> Iterator[Any]:
    """Yield the loader if its batches are in use, and the loaders for the rest of its epoch."""
    for running in GradientState().dataloader_references:
        if running is not None and _whole(running) is loader:
            yield running


def _whole(loader: Any) -> Any:
    return vars(loader).get(_WHOLE, loader)


def prepare_places(loaders: Sequence[Any], places: Sequence[Place]) -> Iterator[Callable[[], None]]:
    """Check positions, and give the actions that move loaders there; nothing is changed before these run."""
    if len(loaders) != len(places):
        raise StateDictMismatchError(
            "the checkpoint is from a run with other data loaders",
            expected=f"{len(loaders)} prepared loaders",
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
    """Return the random generators of loaders, by the loader's number and the owner, such as `"0.sampler"`.

    Generators of seedable samplers are left out: they are seeded again in each epoch.
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
    """Return the loaders that keep their own position (`use_stateful_dataloader`), by number."""
    return {str(n): loader for n, loader in enumerate(loaders) if getattr(loader, "use_stateful_dataloader", False)}


def skip_first_batches(accelerator: Any, dataloader: Any, num_batches: int = 0) -> Any:  # noqa: ARG001 - a method
    """Return a loader for the rest of an epoch, as accelerate's method does, but as if the epoch had never stopped.

    It draws nothing from the global random generator, since the epoch drew its number when it began; and when it
    ends, the original loader continues with the next epoch, in another order.

    Args:
        accelerator: The accelerator of the run.
        dataloader: The loader.
        num_batches: How many batches to skip.

    Returns:
        A loader for the remaining batches.
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
    """Return the sampler that determines the order, or None for iterable data sets."""
    is_of_batches = isinstance(loader.sampler, BatchSampler)
    batches = loader.sampler if is_of_batches else loader.batch_sampler
    while hasattr(batches, "batch_sampler"):  # a process's share of all batches
        batches = batches.batch_sampler
    return getattr(batches, "sampler", None)

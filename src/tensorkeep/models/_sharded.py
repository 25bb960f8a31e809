"""A checkpoint into a model of which each rank has a part: FSDP2, tensor parallelism, or both."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain
from typing import Any

import msgspec
import torch
from torch import nn

from tensorkeep.dtypes import BY_NAME
from tensorkeep.errors import DtypeError, UnsupportedError
from tensorkeep.models._fill_parts import PartJob, check_castable, fill_parts
from tensorkeep.models._load import Loadable, LoadReport, Renaming, check_match, noted_names, opened, renamed_tensors
from tensorkeep.models._match import Match, Wanted, match_tensors
from tensorkeep.models._replace import renew
from tensorkeep.models._replicas import Replicas
from tensorkeep.models._slots import Slot
from tensorkeep.models._spread import as_dtensor, device_of, is_dtensor, local_of, parts_of
from tensorkeep.tensors import LazyTensor


def load_sharded(
    model: nn.Module,
    target: Loadable,
    *,
    strict: bool = True,
    ignore_mismatched: bool = False,
    key_map: Renaming | None = None,
    strip_prefix: str | None = None,
    add_prefix: str | None = None,
    device: Any = None,
    broadcast: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> LoadReport:
    """Load a checkpoint into a model that is spread over ranks; each reads its own parts, and none a whole tensor.

    Call it on all ranks, after `fully_shard` or `parallelize_module`. Parameters on device meta get memory for this
    rank's part of them. Names, shapes and dtypes are checked before anything is written.

    Args:
        model: The model. Its parameters are DTensors, plain tensors, or some of each.
        target: A directory, an index or a file, local or remote; or an open checkpoint, file or view.
        strict: Whether names that only one side has are an error.
        ignore_mismatched: Whether a tensor of another shape is left as it is, instead of being an error.
        key_map: New name by name in the checkpoint, for those that change; or a function that gives the new name of
            each.
        strip_prefix: Text that names in the checkpoint lose, such as `"model."`.
        add_prefix: Text that they get.
        device: Where parameters on device meta get their memory; None for the device of their mesh, and of the CPU
            for plain ones.
        broadcast: Whether what several ranks have alike is read by one of them, which sends it to the others. Worth
            it where a network or a store is slower than the ranks' own network. All ranks must call it with this.
        progress: Called with the bytes loaded so far and the bytes in all, of this rank.

    Returns:
        What was loaded by this rank, and what did not fit.

    Raises:
        StateDictMismatchError: If names or shapes do not fit (also a RuntimeError); it lists them.
        DtypeError: If a tensor cannot become what the model has, such as a complex one a real one.
        UnsupportedError: If a parameter stands for a sum over ranks (Partial), or cannot be written to at all.
        RefusedError: If two tensors would have one name.
        TensorNotFoundError: If no name has the prefix.
        SourceMissingError: If there is no such checkpoint, or a shard is missing.
        FormatError: If an index or a header is malformed.
        IntegrityError: If the checkpoint is not whole.
        TypeError: If the target is a mapping of anything but lazy tensors.
        TransportError: If the bytes cannot be read. What was read until then is in the model.
    """
    with opened(target) as tensors:
        named = renamed_tensors(tensors, key_map, strip_prefix, add_prefix)
        slots = list(_slots_of(model))
        match = _matched(slots, named, noted_names(tensors, key_map, strip_prefix, add_prefix))
        check_match(match, model, tensors.path, strict=strict, ignore_mismatched=ignore_mismatched)
        pairs = [
            (slot, named[source]) for slot, source in zip(slots, match.sources, strict=True) if source is not None
        ]
        for slot, lazy in pairs:
            _check(slot, lazy)
        pairs = _with_memory(model, pairs, device)
        replicas = Replicas(slot.tensor for slot, _ in pairs) if broadcast else None
        jobs = [
            job
            for slot, lazy in pairs
            if replicas is None or replicas.is_read_here(slot.tensor)
            for job in _jobs(slot.tensor, lazy)
        ]
        nbytes = sum(BY_NAME[job.lazy.dtype].nbytes(job.region.n_elements) for job in jobs)
        _fill(jobs, nbytes, progress, replicas)
    return LoadReport(
        match.missing,
        match.unexpected,
        match.mismatched,
        tuple(name for name, tensor in chain(model.named_parameters(), model.named_buffers()) if tensor.is_meta),
        len(pairs),
        nbytes,
    )


def _fill(
    jobs: list[PartJob], nbytes: int, progress: Callable[[int, int], None] | None, replicas: Replicas | None
) -> None:
    done = 0

    def report(new: int) -> None:
        nonlocal done
        done += new
        if progress is not None:
            progress(done, nbytes)

    if replicas is None:
        fill_parts(jobs, report)
        return
    with replicas.agreeing():
        fill_parts(jobs, report)
    replicas.send()


def _matched(slots: Iterable[Slot], named: Mapping[str, LazyTensor], noted: Mapping[str, str]) -> Match:
    wanted = [Wanted(slot.names, tuple(slot.tensor.shape), slot.is_optional) for slot in slots]
    return match_tensors(wanted, {name: lazy.shape for name, lazy in named.items()}, noted)


def _slots_of(model: nn.Module) -> Iterator[Slot]:
    """Give the tensors of a model's state dict, each once however many names it has."""
    places: dict[int, list[tuple[nn.Module, str]]] = {}
    for module in model.modules():
        for attribute, tensor in chain(module._parameters.items(), module._buffers.items()):
            if tensor is not None:
                places.setdefault(id(tensor), []).append((module, attribute))
    names: dict[int, tuple[torch.Tensor, list[str]]] = {}
    for name, value in model.state_dict(keep_vars=True).items():
        if not isinstance(value, torch.Tensor):
            continue
        if id(value) not in places:
            raise UnsupportedError(
                f"`{name}` in the model's state dict is a copy: writing to it would not reach the model", tensor=name
            )
        names.setdefault(id(value), (value, []))[1].append(name)
    for number, (tensor, known) in names.items():
        is_optional = all(
            isinstance(module, nn.modules.batchnorm._NormBase) and attribute == "num_batches_tracked"
            for module, attribute in places[number]
        )
        yield Slot(tuple(known), (tensor,), tuple(places[number]), is_optional)


def _check(slot: Slot, lazy: LazyTensor) -> None:
    tensor, name = slot.tensor, slot.names[0]
    if is_dtensor(tensor) and any(placement.is_partial() for placement in as_dtensor(tensor).placements):
        raise UnsupportedError(
            f"`{name}` stands for a sum over ranks, and none of them has a part of its numbers",
            tensor=name,
            found=str(as_dtensor(tensor).placements),
            hint="Redistribute it to Shard or Replicate first",
        )
    local = local_of(tensor)
    if local.layout != torch.strided or hasattr(local, "__tensor_flatten__"):
        raise UnsupportedError(f"`{name}` of the model cannot be filled", tensor=name, found=type(local).__name__)
    if lazy.dtype not in BY_NAME:
        raise DtypeError(f"`{name}` has a dtype that this version does not know", tensor=name, found=lazy.dtype)
    check_castable(lazy, local, name)


def _with_memory(
    model: nn.Module, pairs: list[tuple[Slot, LazyTensor]], device: Any
) -> list[tuple[Slot, LazyTensor]]:
    """Give memory to what has none, each rank to its own part."""
    without = {id(slot.tensor): (slot.places[0], slot) for slot, _ in pairs if slot.tensor.is_meta}
    if not without:
        return pairs
    for _, slot in without.values():
        renew(slot, slot.tensor.dtype, torch.device(device) if device is not None else device_of(slot.tensor))
    if any(type(module)._apply is not nn.Module._apply for module in model.modules()):
        again: Any = model
        again._apply(lambda tensor: tensor)  # FSDP2 looks at its parameters anew, and pads them
    return [(_renewed(slot) if id(slot.tensor) in without else slot, lazy) for slot, lazy in pairs]


def _renewed(slot: Slot) -> Slot:
    module, attribute = slot.places[0]
    return msgspec.structs.replace(slot, tensors=(getattr(module, attribute),))


def _jobs(tensor: torch.Tensor, lazy: LazyTensor) -> Iterator[PartJob]:
    local = local_of(tensor)
    for part in parts_of(tensor):
        yield PartJob(lazy, part.region, local[part.index])

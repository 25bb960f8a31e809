"""`load_sharded`: a checkpoint into a model that is sharded by FSDP2, tensor parallelism, or both."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any

import msgspec
import torch
from torch import nn

from tensorkeep.arrays.torch.partitioned import refuse_partitioned
from tensorkeep.dtypes import BY_NAME
from tensorkeep.errors import DtypeError, UnsupportedError
from tensorkeep.models._dtensor import as_dtensor, device_of, is_dtensor, local_of, parts_of
from tensorkeep.models._load import Loadable, LoadReport, Renaming, check_match, noted_names, opened, renamed_tensors
from tensorkeep.models._match import Match, Wanted, match_tensors
from tensorkeep.models._parameters import ParameterStorage, is_batch_counter
from tensorkeep.models._replace import reallocate, require_memory
from tensorkeep.models._replicas import Replicas
from tensorkeep.models.filling import PartJob, check_castable, fill_parts
from tensorkeep.tensors import LazyTensor

if TYPE_CHECKING:
    from tensorkeep.encryption import KeyLike
    from tensorkeep.trust import Trust


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
    dequantize: Any = None,
    trust: Trust | None = None,
    key: KeyLike | Sequence[KeyLike] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> LoadReport:
    """Load a checkpoint into a model that is sharded over ranks; each rank reads its own parts, and no whole tensor.

    Call it on all ranks, after `fully_shard` or `parallelize_module`:

        with torch.device("meta"):
            model = Model()
        fully_shard(model)
        load_sharded(model, "checkpoint", device="cuda")

    Parameters on device meta get memory for this rank's part. Names, shapes and dtypes are checked before anything
    is written.

    Args:
        model: The model. Its parameters are DTensors, plain tensors, or both.
        target: A directory, a shard index or a file, local or remote; or an open checkpoint, file or view.
        strict: Whether to refuse names that only one side has.
        ignore_mismatched: Whether to keep the model's values of tensors whose shapes differ, instead of raising.
        key_map: Renames tensors of the checkpoint: a dict of old to new name for those that change, or a function
            from each old name to the new one. It is applied after `strip_prefix` and before `add_prefix`.
        strip_prefix: Text to remove from the start of names, such as `"model."`; other names stay as they are.
        add_prefix: Text to put before names.
        device: Where parameters on device meta get their memory; None for the device of their mesh, and for the CPU
            if they are plain tensors.
        broadcast: Whether a part that several ranks have is read by one of them and sent to the others. Worth it if
            storage is slower than the network between ranks. All ranks must pass the same value.
        dequantize: Dtype in which to compute the numbers of quantized tensors, such as `"bf16"`, before they are cast
            to the dtypes of their parameters; other tensors stay as they are. None takes all tensors as they are.
        trust: Whose signatures count; see `tensorkeep.open`. Then only what they signed is loaded.
        key: The key of an encrypted checkpoint; see `tensorkeep.open`.
        progress: Called with the bytes that this rank has loaded so far and its total.

    Returns:
        What this rank loaded, and what did not fit.

    Raises:
        StateDictMismatchError: If names or shapes do not fit (also a RuntimeError); it lists them.
        DtypeError: If a tensor cannot be cast to the model's dtype, such as a complex one to a real one.
        EncryptedError: If it is encrypted, and the key is missing or another one.
        UnsupportedError: If a parameter is a pending sum over ranks (placement Partial), or cannot be written to;
            or `trust` or `key` is given with what is open already.
        RefusedError: If renaming gives two tensors one name.
        TensorNotFoundError: If no name has the prefix, or a name in `key_map` is not in the checkpoint.
        SourceMissingError: If there is no such checkpoint, or a shard is missing.
        FormatError: If a shard index or a header is malformed, or a part of a quantized tensor is missing.
        IntegrityError: If the checkpoint is incomplete or damaged.
        TrustError: If it is not proven that this is what was signed, or the policy does not allow the format.
        LimitError: If this rank's parts do not fit on a device, or in the budget of `tensorkeep.staging`.
        TypeError: If `target` is a dict of anything but lazy tensors.
        TransportError: If the bytes cannot be read, by this rank or, with `broadcast`, by any; or a rank ends
            meanwhile. The model then has what was read so far.
    """
    with opened(target, trust, key, dequantize) as tensors:
        named = renamed_tensors(tensors, key_map, strip_prefix, add_prefix)
        storages = list(_storages_of(model))
        match = _matched(storages, named, noted_names(tensors, key_map, strip_prefix, add_prefix))
        check_match(match, model, tensors.path, strict=strict, ignore_mismatched=ignore_mismatched)
        pairs = [
            (storage, named[source])
            for storage, source in zip(storages, match.sources, strict=True)
            if source is not None
        ]
        for storage, lazy in pairs:
            _check(storage, lazy)
        pairs = _with_memory(model, pairs, device, tensors.path)
        replicas = Replicas(storage.tensor for storage, _ in pairs) if broadcast else None
        jobs = [
            job
            for storage, lazy in pairs
            if replicas is None or replicas.is_read_here(storage.tensor)
            for job in _jobs(storage.tensor, lazy)
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


def _matched(
    storages: Iterable[ParameterStorage], named: Mapping[str, LazyTensor], noted: Mapping[str, str]
) -> Match:
    wanted = [Wanted(storage.names, tuple(storage.tensor.shape), storage.is_optional) for storage in storages]
    return match_tensors(wanted, {name: lazy.shape for name, lazy in named.items()}, noted)


def _storages_of(model: nn.Module) -> Iterator[ParameterStorage]:
    """Give the tensors of a model's state dict, each once for all its names."""
    refuse_partitioned(model)
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
        is_optional = all(is_batch_counter(module, attribute) for module, attribute in places[number])
        yield ParameterStorage(tuple(known), (tensor,), tuple(places[number]), is_optional)


def _check(storage: ParameterStorage, lazy: LazyTensor) -> None:
    tensor, name = storage.tensor, storage.names[0]
    if is_dtensor(tensor) and any(placement.is_partial() for placement in as_dtensor(tensor).placements):
        raise UnsupportedError(
            f"`{name}` is a pending sum over ranks, so no rank has a part of its values",
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
    model: nn.Module, pairs: list[tuple[ParameterStorage, LazyTensor]], device: Any, path: str
) -> list[tuple[ParameterStorage, LazyTensor]]:
    """Allocate memory for parameters on device meta, for this rank's part only."""
    without = {id(storage.tensor): storage for storage, _ in pairs if storage.tensor.is_meta}
    if not without:
        return pairs
    changes = [
        (each, each.tensor.dtype, device_of(each.tensor) if device is None else torch.device(device))
        for each in without.values()
    ]
    require_memory(changes, path)
    for change in changes:
        reallocate(*change)
    if any(type(module)._apply is not nn.Module._apply for module in model.modules()):
        again: Any = model
        again._apply(lambda tensor: tensor)  # makes FSDP2 look at its parameters again, and pad them
    return [(_renewed(storage) if id(storage.tensor) in without else storage, lazy) for storage, lazy in pairs]


def _renewed(storage: ParameterStorage) -> ParameterStorage:
    module, attribute = storage.places[0]
    return msgspec.structs.replace(storage, tensors=(getattr(module, attribute),))


def _jobs(tensor: torch.Tensor, lazy: LazyTensor) -> Iterator[PartJob]:
    local = local_of(tensor)
    for part in parts_of(tensor):
        yield PartJob(lazy, part.region, local[part.index])

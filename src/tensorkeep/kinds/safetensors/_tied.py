"""Load whole tensors so that those that shared memory share it again."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tensorkeep.arrays import SharedMemory, device_for
from tensorkeep.arrays.elements import known_dtype
from tensorkeep.arrays.sharing import shared_memory_for
from tensorkeep.collector import PausedCollector
from tensorkeep.dtypes import ALL_BY_NAME
from tensorkeep.entries import TensorEntry
from tensorkeep.errors import LimitError, SharedMemoryError
from tensorkeep.formats.safetensors import Alias
from tensorkeep.limits import MAX_COPIES, MAX_EXPANDED_NBYTES
from tensorkeep.tensors import LazyTensor, Reader, Ties, c_strides, load_together


def load_tied(
    wanted: Mapping[str, LazyTensor],
    frameworks: Mapping[str, str],
    aliases: Mapping[str, Alias],
    stored: Callable[[str], LazyTensor],
    *,
    device: Any = "cpu",
    ties: Ties = "share",
) -> dict[str, Any]:
    """Read whole tensors, and let them share memory as `ties` says."""
    if ties == "copy":
        refuse_copies(wanted, aliases, stored)
    groups = _groups(wanted, aliases) if ties != "copy" else {}
    if groups and ties == "error":
        owner, names = next(iter(groups.items()))
        raise SharedMemoryError(
            "tensors share memory",
            tensor=names[0],
            found=f"{', '.join(f'`{name}`' for name in names)}: the memory of `{owner}`",
            hint='Pass ties="share" to share it again, or ties="copy" to give each tensor its own',
        )
    tied = {name for names in groups.values() for name in names}
    readers: dict[tuple[Reader, str], Reader] = {}
    alone: dict[str, LazyTensor] = {}
    with PausedCollector():
        for name, lazy in wanted.items():
            if name not in tied:
                framework = frameworks[name]
                reader = readers.get((lazy.reader, framework))
                if reader is None:
                    reader = lazy.reader.with_framework(framework, device_for(framework, device))
                    readers[lazy.reader, framework] = reader
                alone[name] = LazyTensor(name, lazy.entry, reader)
    loaded = load_together(alone)
    loaded |= _load_groups(groups, frameworks, aliases, stored, device)
    return {name: loaded[name] for name in wanted}


def refuse_copies(
    wanted: Mapping[str, LazyTensor], aliases: Mapping[str, Alias], stored: Callable[[str], LazyTensor]
) -> None:
    """Refuse to copy very many views: a small file can declare a thousand views of one tensor."""
    views = [name for name in wanted if name in aliases]
    nbytes = sum(wanted[name].nbytes for name in views)
    if nbytes > MAX_EXPANDED_NBYTES:
        limit = MAX_COPIES * sum(stored(owner).nbytes for owner in {aliases[name].of for name in views})
        if nbytes > max(limit, MAX_EXPANDED_NBYTES):
            raise LimitError(
                "tensors that share memory are too large to be copied one by one",
                tensor=views[0],
                expected=f"at most {max(limit, MAX_EXPANDED_NBYTES):,} bytes",
                found=f"{nbytes:,} bytes in {len(views):,} tensors",
                hint="Load them with shared memory, or a few at a time",
            )


def _groups(wanted: Mapping[str, LazyTensor], aliases: Mapping[str, Alias]) -> dict[str, list[str]]:
    """Map each stored name to the wanted names that share its memory, if there is any view among them."""
    groups: dict[str, list[str]] = {}
    for name in wanted:
        if name in aliases:
            groups.setdefault(aliases[name].of, []).append(name)
    for owner, names in groups.items():
        if owner in wanted:
            names.insert(0, owner)
    return groups


def _load_groups(
    groups: Mapping[str, list[str]],
    frameworks: Mapping[str, str],
    aliases: Mapping[str, Alias],
    stored: Callable[[str], LazyTensor],
    device: Any,
) -> dict[str, Any]:
    owners = {owner: stored(owner) for owner in groups}
    memory = _load_bytes(owners)
    makers = {
        framework: shared_memory_for(framework, device_for(framework, device))
        for framework in {frameworks[name] for names in groups.values() for name in names}
    }
    made: dict[str, Any] = {}
    for owner, names in groups.items():
        storages: dict[str, Any] = {}
        for name in names:
            framework = frameworks[name]
            if framework not in storages:
                storages[framework] = makers[framework].storage(memory[owner])
            alias = aliases.get(name) or Alias(owner)
            made[name] = _view(makers[framework], storages[framework], alias, owners[owner].entry)
    return made


def _view(maker: SharedMemory, storage: Any, alias: Alias, entry: TensorEntry) -> Any:
    """Make a tensor over shared memory; the range was checked when the alias was read."""
    dtype_name = alias.dtype or entry.dtype
    dtype = ALL_BY_NAME.get(dtype_name) or known_dtype(alias.of, entry)
    shape = entry.shape if alias.shape is None else alias.shape
    strides = c_strides(shape) if alias.strides is None else alias.strides
    offset = alias.offset * 8 // dtype.bits
    return maker.view_of(storage, dtype, offset, shape, strides, is_conj=alias.is_conj, is_neg=alias.is_neg)


def _load_bytes(owners: Mapping[str, LazyTensor]) -> dict[str, Any]:
    """Read whole tensors of any dtype as bytes."""
    readers: dict[Reader, Reader] = {}
    lazies: dict[str, LazyTensor] = {}
    for name, owner in owners.items():
        reader = readers.setdefault(owner.reader, owner.reader.with_framework("numpy"))
        entry = TensorEntry("U8", (owner.entry.nbytes,), owner.entry.data_offsets)
        lazies[name] = LazyTensor(name, entry, reader)
    return load_together(lazies)

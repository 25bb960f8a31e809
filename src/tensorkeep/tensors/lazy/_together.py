"""Several lazy tensors read at once: planned, in parallel, or in the order of their bytes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, Final

from tensorkeep.arrays import DeviceMemory, order_of
from tensorkeep.entries import TensorEntry
from tensorkeep.limits import ARENA_NBYTES
from tensorkeep.parallel import Progress, ProgressMeter, parallel_for_each, scaled_report
from tensorkeep.tensors.lazy._by_device import Computed, compute_all, computed_of
from tensorkeep.tensors.lazy._facts import selected_of
from tensorkeep.tensors.lazy._lazy import LazyTensor
from tensorkeep.tensors.readers import Reader, ReadPlan, TensorReader, gathers, plan_reads, reads_staged
from tensorkeep.tensors.to_device import (
    Block,
    Staged,
    are_worth_staging,
    device_memory_of,
    load_blocks,
    load_staged,
    require_room,
)

_N_PARTS_AT_ONCE: Final = 16
"""Parts that are read in parallel; each one from a server takes several requests in turn."""


def plan_together(whole: Iterable[LazyTensor], parts: Iterable[tuple[LazyTensor, Any]]) -> ReadPlan:
    """Plan to read tensors whole, and parts of some."""
    return plan_reads(
        ((lazy.reader, lazy.entry) for lazy in whole),
        ((lazy.reader, lazy.entry, selected_of(lazy, index)) for lazy, index in parts),
    )


def load_parts_together(parts: Mapping[str, tuple[LazyTensor, Any]]) -> dict[str, Any]:
    """Read parts of tensors in parallel."""
    loaded: dict[str, Any] = dict.fromkeys(parts)
    gathered = _gathered_together(parts)
    left = [name for name in parts if name not in gathered]
    orders = {reader: order_of(reader.adapter) for reader in {parts[name][0].reader for name in left}}

    def read(name: str) -> None:
        lazy, index = parts[name]
        with orders[lazy.reader]():
            loaded[name] = lazy[index]

    parallel_for_each(left, read, n_threads=_N_PARTS_AT_ONCE)
    return loaded | gathered


def _gathered_together(
    parts: Mapping[str, tuple[LazyTensor, Any]], report: Callable[[int], None] | None = None
) -> dict[str, Any]:
    """Read large parts to devices that copy in the background, all through the same buffers."""
    by_device: dict[str, tuple[DeviceMemory, dict[str, tuple[Block, Any]]]] = {}
    for name, (lazy, index) in parts.items():
        if gathers(lazy.reader):
            selection = selected_of(lazy, index)
            found = lazy.reader.staged_block(name, lazy.entry, selection)
            if found is not None and found[1].is_worth_gathering:
                blocks = by_device.setdefault(found[0].name, (found[0], {}))[1]
                blocks[name] = (found[1], selection.local)
    loaded: dict[str, Any] = {}
    for device, blocks in by_device.values():
        nbytes = sum(block.nbytes for block, _ in blocks.values())
        stored = sum(parts[name][0].entry.nbytes for name in blocks)
        counted = None if report is None else scaled_report(report, stored, nbytes)
        tensors = load_blocks(device, [block for block, _ in blocks.values()], counted)
        loaded |= {name: tensor[local] for tensor, (name, (_, local)) in zip(tensors, blocks.items(), strict=True)}
    return loaded


def load_together(tensors: Mapping[str, LazyTensor], meter: ProgressMeter | None = None) -> dict[str, Any]:
    """Read whole tensors; those of one file together, in the order of their bytes, in batches if a meter counts."""
    groups: dict[Reader, dict[str, TensorEntry]] = {}
    for name, lazy in tensors.items():
        groups.setdefault(lazy.reader, {})[name] = lazy.entry
    computed = computed_of(tensors)
    needed = _require_room(groups, computed)
    report = None if meter is None else meter.add
    loaded = _staged_together(groups, report)
    count = partial(_count, report, tensors)
    loaded |= compute_all(computed, load_together, count, needed)
    made = (names for reader, names in groups.items() if gathers(reader) and not reads_staged(reader))
    made_of = {name: (tensors[name], ...) for names in made for name in names if name not in loaded}
    loaded |= _gathered_together(made_of, report)
    for reader, entries in groups.items():
        left = [item for item in entries.items() if item[0] not in loaded]
        if not left:
            continue
        in_order = sorted(left, key=lambda item: item[1].data_offsets)
        is_one = meter is None or (isinstance(reader, TensorReader) and reader.loads_at_once)
        for batch in [dict(in_order)] if is_one else _batches(in_order):
            loaded |= reader.load(batch)
            if meter is not None:
                meter.add(sum(entry.nbytes for entry in batch.values()))
    return {name: loaded[name] for name in tensors}


def _count(report: Callable[[int], None] | None, tensors: Mapping[str, LazyTensor], name: str) -> None:
    if report is not None:
        report(tensors[name].entry.nbytes)


def _require_room(
    groups: Mapping[Reader, Mapping[str, TensorEntry]], computed: Iterable[Computed]
) -> Mapping[str, int]:
    """Refuse tensors that do not fit on a device together, whichever ways they get there; return what they take."""
    needed: dict[str, int] = {}
    for reader, entries in groups.items():
        device = device_memory_of(reader.adapter)
        if device is not None:
            sizes = (
                reader.cast_to.nbytes(entry.n_elements) if reader.cast_to else entry.nbytes
                for entry in entries.values()
            )
            needed[device.name] = needed.get(device.name, 0) + sum(sizes)
            require_room(device, needed[device.name], reader.source.name if reader.source else None)
    for each in computed:
        part = next(iter(next(iter(each.tensors.values())).parts.values()))
        path = part.source.name if part.source else None
        require_room(each.device, needed[each.device.name] + each.nbytes_beside, path)
    return needed


def _staged_together(
    groups: Mapping[Reader, Mapping[str, TensorEntry]], report: Callable[[int], None] | None
) -> dict[str, Any]:
    """Load tensors to devices that copy in the background, from all files through the same buffers."""
    by_device: dict[str, tuple[DeviceMemory, list[Staged]]] = {}
    for reader, entries in groups.items():
        found = reader.staged(entries) if reads_staged(reader) else None
        if found is not None:
            by_device.setdefault(found[0].name, (found[0], []))[1].append(found[1])
    loads = [load for load in by_device.values() if are_worth_staging(load[1])]
    loaded: dict[str, Any] = {}
    for of_device in load_staged(loads, report) if loads else ():
        for tensors in of_device:
            loaded |= tensors
    return loaded


def load_with_progress(tensors: Mapping[str, LazyTensor], progress: Progress | None) -> dict[str, Any]:
    """Read whole tensors, and say how far it is, in bytes of the files."""
    total = sum(lazy.entry.nbytes for lazy in tensors.values())
    return load_together(tensors, ProgressMeter.of(progress, total))


def _batches(entries: Iterable[tuple[str, TensorEntry]]) -> Iterator[dict[str, TensorEntry]]:
    """Divide tensors into batches that are large enough to be read at full speed."""
    batch: dict[str, TensorEntry] = {}
    nbytes = 0
    for name, entry in entries:
        if batch and nbytes + entry.nbytes > ARENA_NBYTES:
            yield batch
            batch, nbytes = {}, 0
        batch[name] = entry
        nbytes += entry.nbytes
    if batch:
        yield batch

"""Open the files of a distributed checkpoint as one, after comparing them with `.metadata`."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from functools import partial
from typing import Final

import msgspec

from tensorkeep.dtypes import ALL_BY_NAME
from tensorkeep.errors import IntegrityError, SourceMissingError, TensorkeepError, UnsafeError
from tensorkeep.formats.pickles import DEFAULT_LIMITS, Unknown
from tensorkeep.formats.safetensors import read_header
from tensorkeep.kinds.base import OpenOptions, refuse_expansion
from tensorkeep.kinds.dcp._checkpoint import DistributedCheckpoint
from tensorkeep.kinds.dcp._files import ChunkFiles
from tensorkeep.kinds.dcp._location import DistributedLocation
from tensorkeep.kinds.dcp._metadata import SavedState, merged, saved_state
from tensorkeep.kinds.dcp._shards import state_of_shards
from tensorkeep.kinds.pickles import pickle_over
from tensorkeep.tensors import LazyTensor, PlacedPiece, assemble
from tensorkeep.texts import listed
from tensorkeep.transport import Backend, ByteSource, join, open_listed, open_source

_TORCH: Final = "torch.distributed.checkpoint."
"""Package of the classes in `.metadata`."""


class FileFault(msgspec.Struct, frozen=True):
    """What is wrong with a file.

    Attributes:
        file: Its path below the directory.
        message: What is wrong.
        expected: What should be there; None if the file itself is missing.
        found: What is there.
    """

    file: str
    message: str
    expected: str | None = None
    found: str | None = None


class Examined(msgspec.Struct, frozen=True, eq=False):
    """The metadata of a checkpoint, and its files.

    Attributes:
        state: What was saved.
        files: Path to file, for those that could be opened.
        faults: What is wrong with files.
        unknowns: Objects in `.metadata` other than torch's own metadata classes.
    """

    state: SavedState
    files: dict[str, ByteSource]
    faults: list[FileFault]
    unknowns: dict[str, Unknown]


def examine_distributed(location: DistributedLocation, opened: ExitStack, options: OpenOptions) -> Examined:
    """Read the metadata of a checkpoint, and open its files."""
    if location.shards:
        shards = {}
        for name in location.shards:
            shards[name] = open_source(join(location.directory, name), backend=options.backend)
            opened.callback(shards[name].close)
        return Examined(
            state_of_shards({name: read_header(source) for name, source in shards.items()}), shards, [], {}
        )
    state, unknowns = _read_metadata(location, options)
    if options.strict and unknowns:
        texts = ", ".join(unknown.qualified_name for unknown in unknowns.values())
        raise UnsafeError("names that are not known to be data", path=location.directory, found=texts)
    files, faults = _files(location.directory, state, opened, options.backend)
    _refuse_expansion(state, files, location.directory)
    return Examined(state, files, faults, unknowns)


def _read_metadata(location: DistributedLocation, options: OpenOptions) -> tuple[SavedState, dict[str, Unknown]]:
    """Read `.metadata`; also return the objects in it other than torch's own metadata classes."""
    states: list[SavedState] = []
    unknowns: dict[str, Unknown] = {}
    for name in location.metadata:
        path = join(location.directory, name)
        with pickle_over(open_source(path, backend=options.backend), _with_classes_of_torch(options)) as file:
            try:
                states.append(saved_state(file.document.value))
            except TensorkeepError as error:
                raise error.with_fields(path=path) from None
            unknowns |= {f"{name}:{at}": unknown for at, unknown in file.unknowns.items() if not _is_own(unknown)}
    return (states[0] if len(states) == 1 else merged(states)), unknowns


def _with_classes_of_torch(options: OpenOptions) -> OpenOptions:
    """Return options that accept torch's metadata classes; other objects in `.metadata` are checked afterwards."""
    return msgspec.structs.replace(options, strict=False)


def _is_own(unknown: Unknown) -> bool:
    return unknown.module.startswith(_TORCH)


def _files(
    directory: str, state: SavedState, opened: ExitStack, backend: Backend
) -> tuple[dict[str, ByteSource], list[FileFault]]:
    """Open the files that the metadata lists, and check that each is long enough."""
    ends: dict[str, int] = {}
    for item in state.items:
        ends[item.file] = max(ends.get(item.file, 0), item.stop)
    files: dict[str, ByteSource] = {}
    faults: list[FileFault] = []
    for name, end in sorted(ends.items()):
        try:
            files[name] = open_listed(join(directory, name), backend=backend)
        except (SourceMissingError, FileNotFoundError):
            faults.append(FileFault(name, "the file is missing"))
            continue
        opened.callback(files[name].close)
        if files[name].nbytes < end:
            found = f"{files[name].nbytes:,}"
            faults.append(FileFault(name, "the file is truncated", expected=f"{end:,} bytes or more", found=found))
    return files, faults


def open_distributed(location: DistributedLocation, options: OpenOptions) -> DistributedCheckpoint:
    """Open a checkpoint of torch.distributed.checkpoint. Nothing in it is run."""
    with ExitStack() as opened:
        found = examine_distributed(location, opened, options)
        _refuse(found.faults, location.directory)
        files = ChunkFiles(found.files, options.limits or DEFAULT_LIMITS)
        tensors = {
            name: assembled(name, found.state, files, location.directory, options) for name in found.state.tensors
        }
        values = {name: files.value(item, options) for name, item in found.state.values.items()}
        checkpoint = DistributedCheckpoint(location.directory, found.state, tensors, values, files, found.unknowns)
        opened.pop_all()
        return checkpoint


def assembled(name: str, state: SavedState, files: ChunkFiles, path: str, options: OpenOptions) -> LazyTensor:
    """Return a lazy tensor assembled from its parts, without opening them."""
    tensor = state.tensors[name]
    placed = [
        PlacedPiece(chunk.region, chunk.item.file, partial(files.chunk, name, tensor.dtype, chunk))
        for chunk in tensor.chunks
    ]
    return assemble(
        name, tensor.dtype, tensor.shape, placed, path=path, framework=options.framework, device=options.device
    )


def _refuse(faults: list[FileFault], path: str) -> None:
    if not faults:
        return
    texts = [f"{fault.file}: {fault.message}" + (f", {fault.found} bytes" if fault.found else "") for fault in faults]
    all_missing = all(fault.expected is None for fault in faults)
    error: type[TensorkeepError] = SourceMissingError if all_missing else IntegrityError
    raise error(
        "files of the checkpoint are missing" if all_missing else "the checkpoint is not whole",
        path=path,
        found=listed(texts, separator="; "),
        hint="Get the named files again",
    )


def _refuse_expansion(state: SavedState, files: Mapping[str, ByteSource], path: str) -> None:
    """Refuse metadata that declare very many tensors and values in a few bytes."""
    n_bytes = sum(source.nbytes for source in files.values())
    declared = sum(
        ALL_BY_NAME[tensor.dtype].nbytes(chunk.region.n_elements)
        for tensor in state.tensors.values()
        for chunk in tensor.chunks
    )
    declared += sum(item.stop - item.start for item in state.values.values())
    if files:
        refuse_expansion(declared, n_bytes, path, "Get the metadata again from where the files are from")

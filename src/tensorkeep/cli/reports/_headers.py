"""The headers of what a path stands for: a file alone, or all shards of a checkpoint."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import tensorkeep
from tensorkeep.cli.reports._report import Content, Digests, Order, Report, report_on
from tensorkeep.cli.reports._state import StateReport, read_state
from tensorkeep.entries import TensorEntry
from tensorkeep.errors import IntegrityError, UnsupportedError
from tensorkeep.formats.safetensors import STATE_KEY, Header, free_text, read_header, read_seal
from tensorkeep.transport import ByteSource, finish_pending_commit, open_source

if TYPE_CHECKING:
    from tensorkeep.kinds.dcp import DistributedCheckpoint
    from tensorkeep.kinds.pickles import PickleFile
    from tensorkeep.kinds.safetensors import Checkpoint
    from tensorkeep.tensors import TensorFile


def read_report(path: str, *, variant: str | None, pattern: str | None, order: Order) -> Report:
    """Read headers, and nothing else."""
    if path.endswith(".safetensors") and not os.path.isdir(path) and not _is_under_way(path):
        content, state = _read_file(path)
        return report_on([content], path=path, state=state, pattern=pattern, order=order)
    state = None
    with tensorkeep.open(path, variant=variant, dangerous="record") as tensors:
        if isinstance(tensors, tensorkeep.TensorFile):
            content, state = _read(tensors.source, os.path.basename(tensors.path))
            contents, index, splits = [content], None, None
        elif isinstance(tensors, tensorkeep.PickleFile):
            contents, index, splits = [_pickled(os.path.basename(tensors.path), tensors)], None, None
        elif isinstance(tensors, tensorkeep.PickleSet):
            pairs = zip(tensors.files, tensors.prefixed(), strict=True)
            contents = [_pickled(name, file, prefix) for name, (prefix, file) in pairs]
            index, splits = os.path.basename(tensors.path), None
        elif isinstance(tensors, tensorkeep.DistributedCheckpoint):
            contents, index, splits = _distributed(tensors), os.path.basename(os.path.abspath(tensors.path)), None
        else:
            contents = [_content(name, shard) for name, shard in tensors.shards.items()]
            index, splits = os.path.basename(tensors.path), tensors.index.splits
            state = state_of(tensors)
    return report_on(contents, path=path, index=index, splits=splits, state=state, pattern=pattern, order=order)


def state_of(tensors: object) -> StateReport | None:
    """Read what open files say of a state."""
    if isinstance(tensors, tensorkeep.TensorFile):
        return read_state(tensors.state_text, tensors.entries)
    if isinstance(tensors, tensorkeep.Checkpoint):
        return read_state(tensors.index.state, _stored(tensors))
    return None


def _stored(checkpoint: Checkpoint) -> dict[str, TensorEntry]:
    """Return name to entry of all that the shards hold, with tensors that are cut over several as one."""
    splits = checkpoint.index.splits
    pieces = {piece for names in splits.values() for piece in names}
    whole = {
        name: entry
        for shard in checkpoint.shards.values()
        for name, entry in shard.entries.items()
        if name not in pieces
    }
    return whole | {name: checkpoint.stored(name).entry for name in splits}


def _is_under_way(path: str) -> bool:
    """Say whether the file is of a save that was committed, and cannot be finished now; one that can be is."""
    directory, name = os.path.split(path)
    return finish_pending_commit(directory or os.curdir, name.removesuffix(".safetensors")) is not None


def _read_file(path: str) -> tuple[Content, StateReport | None]:
    source = open_source(path)
    try:
        return _read(source, os.path.basename(path))
    finally:
        source.close()


def _read(source: ByteSource, name: str) -> tuple[Content, StateReport | None]:
    """Read the header of one file; one that is not true of its digests is shown all the same."""
    header = read_header(source)
    content = Content(
        file=name,
        file_nbytes=source.nbytes,
        data_start=header.data_start,
        entries=header.entries,
        metadata=free_text(header.metadata),
        digests=_digests(source, header),
    )
    return content, read_state((header.metadata or {}).get(STATE_KEY), header.entries)


def _digests(source: ByteSource, header: Header) -> Digests:
    try:
        return "none" if read_seal(source, header) is None else "all"
    except (IntegrityError, UnsupportedError):
        return "stale"


_FORMS = {
    "zip": "PyTorch zip archive",
    "torchscript": "TorchScript archive",
    "legacy": "PyTorch stream of pickles, as before 1.6",
    "tar": "PyTorch tar archive, as before 0.1.12",
    "pickle": "pickle",
}


def _pickled(name: str, file: PickleFile, prefix: str = "") -> Content:
    return Content(
        file=name,
        file_nbytes=file.source.nbytes,
        data_start=0,
        entries={
            prefix + name: TensorEntry(lazy.dtype, lazy.shape, lazy.data_offsets)
            for name, lazy in sorted(file.items(), key=lambda item: item[1].data_offsets)
        },
        metadata=None,
        digests="none",
        form=_FORMS[file.form],
        n_unknown=len(file.unknowns),
        dangers=file.dangers,
    )


def _distributed(checkpoint: DistributedCheckpoint) -> list[Content]:
    """Describe what many ranks wrote: each tensor under the file that has its first part."""
    unknowns, dangers = checkpoint.unknowns, checkpoint.dangers
    entries: dict[str, dict[str, TensorEntry]] = {file: {} for file in checkpoint.files}
    for name, lazy in checkpoint.items():
        file = checkpoint.file_of(name)
        entries[file][name] = TensorEntry(lazy.dtype, lazy.shape, (0, lazy.nbytes))
    return [
        Content(
            file=file,
            file_nbytes=source.nbytes,
            data_start=0,
            entries=entries[file],
            metadata=None,
            digests="none",
            form="files of torch.distributed.checkpoint",
            n_unknown=0 if place else len(unknowns),
            dangers={} if place else dangers,
        )
        for place, (file, source) in enumerate(checkpoint.files.items())
    ]


def _content(name: str, file: TensorFile) -> Content:
    return Content(
        file=name,
        file_nbytes=file.source.nbytes,
        data_start=file.data_start,
        entries=file.entries,
        metadata=file.metadata if file.has_metadata else None,
        digests="none" if file.seal is None else "all",
    )

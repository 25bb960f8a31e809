"""The headers of what a path stands for: a file alone, or all shards of a checkpoint."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import tensorkeep
from tensorkeep.cli._report import Content, Digests, Order, Report, report_on
from tensorkeep.entries import TensorEntry
from tensorkeep.errors import IntegrityError, UnsupportedError
from tensorkeep.formats.safetensors import Header, read_header, read_seal, without_seal
from tensorkeep.transport import ByteSource, finish_pending, open_source

if TYPE_CHECKING:
    from tensorkeep import PickleFile, TensorFile

__all__ = ["read_report"]


def read_report(path: str, *, variant: str | None, pattern: str | None, order: Order) -> Report:
    """Read headers, and nothing else.

    Args:
        path: A file, a directory or an index.
        variant: Such as `"fp16"`, where the path is a directory that has several checkpoints.
        pattern: Names that are shown; all if None.
        order: What they are sorted by.

    Returns:
        What the headers say.

    Raises:
        SourceMissingError: If there is nothing, or a shard is missing.
        IntegrityError: If several shards are not one checkpoint.
        FormatError: If a file is not what it should be.
        TransportError: If it cannot be read.
    """
    if path.endswith(".safetensors") and not os.path.isdir(path) and not _is_under_way(path):
        return report_on([_read_file(path)], path=path, pattern=pattern, order=order)
    with tensorkeep.open(path, variant=variant, dangerous="record") as tensors:
        if isinstance(tensors, tensorkeep.TensorFile):
            contents, index, splits = [_content(os.path.basename(tensors.path), tensors)], None, None
        elif isinstance(tensors, tensorkeep.PickleFile):
            contents, index, splits = [_pickled(os.path.basename(tensors.path), tensors)], None, None
        elif isinstance(tensors, tensorkeep.PickleSet):
            pairs = zip(tensors.files, tensors.prefixed(), strict=True)
            contents = [_pickled(name, file, prefix) for name, (prefix, file) in pairs]
            index, splits = os.path.basename(tensors.path), None
        else:
            contents = [_content(name, shard) for name, shard in tensors.shards.items()]
            index, splits = os.path.basename(tensors.path), tensors.index.splits
    return report_on(contents, path=path, index=index, splits=splits, pattern=pattern, order=order)


def _is_under_way(path: str) -> bool:
    """Say whether the file is of a save that was committed, and cannot be finished now; one that can be is."""
    directory, name = os.path.split(path)
    return finish_pending(directory or os.curdir, name.removesuffix(".safetensors")) is not None


def _read_file(path: str) -> Content:
    """Read the header of one file; one that is not true of its digests is shown all the same."""
    source = open_source(path)
    try:
        header = read_header(source)
        return Content(
            file=os.path.basename(path),
            file_nbytes=source.nbytes,
            data_start=header.data_start,
            entries=header.entries,
            metadata=without_seal(header.metadata),
            digests=_digests(source, header),
        )
    finally:
        source.close()


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


def _content(name: str, file: TensorFile) -> Content:
    return Content(
        file=name,
        file_nbytes=file.source.nbytes,
        data_start=file.data_start,
        entries=file.entries,
        metadata=file.metadata if file.has_metadata else None,
        digests="none" if file.seal is None else "all",
    )

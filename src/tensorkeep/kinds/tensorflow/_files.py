"""Opens the index and the data files of a checkpoint, and compares them."""

from __future__ import annotations

from contextlib import ExitStack

import msgspec

from tensorkeep.errors import FormatError, RefusedError, SourceMissingError
from tensorkeep.formats.tensorflow import INDEX_SUFFIX, Bundle, data_name, read_bundle
from tensorkeep.kinds.base import Finding, OpenOptions
from tensorkeep.kinds.tensorflow._location import BundleLocation
from tensorkeep.transport import ByteSource, open_listed, open_source


class BundleFiles(msgspec.Struct, frozen=True, eq=False):
    """The files of a checkpoint.

    Attributes:
        bundle: What the index says.
        index: The index.
        shards: Number to data file, for those that hold anything and could be opened.
        names: Number to name, for all that hold anything.
        faults: What is wrong with data files.
    """

    bundle: Bundle
    index: ByteSource
    shards: dict[int, ByteSource]
    names: dict[int, str]
    faults: list[Finding]


def open_files(location: BundleLocation, opened: ExitStack, options: OpenOptions) -> BundleFiles:
    """Open the files, which `opened` closes."""
    index = _open_index(location, options)
    opened.callback(index.close)
    try:
        bundle = read_bundle(index)
    except (FormatError, RefusedError) as error:
        raise error.with_fields(path=index.name) from None
    names: dict[int, str] = {}
    shards: dict[int, ByteSource] = {}
    faults: list[Finding] = []
    for shard, nbytes in sorted(bundle.ends().items()):
        names[shard] = name = data_name(location.stem, shard, bundle.header.n_shards)
        try:
            shards[shard] = source = open_listed(location.path_of(name), backend=options.backend)
        except (SourceMissingError, FileNotFoundError):
            faults.append(Finding("missing", "the file is missing", name))
            continue
        opened.callback(source.close)
        if source.nbytes < nbytes:
            expected, found = f"{nbytes:,} bytes or more", f"{source.nbytes:,}"
            faults.append(Finding("truncated", "the file is truncated", name, expected=expected, found=found))
    return BundleFiles(bundle, index, shards, names, faults)


def _open_index(location: BundleLocation, options: OpenOptions) -> ByteSource:
    path = location.path_of(location.stem + INDEX_SUFFIX)
    try:
        return open_source(path, backend=options.backend)
    except (SourceMissingError, FileNotFoundError):
        if not location.is_saved_model:
            raise
        raise SourceMissingError(
            "the SavedModel has no variables",
            path=location.directory,
            expected=location.stem + INDEX_SUFFIX,
            hint="If it was copied, get that folder too; a frozen model has none",
        ) from None

"""The record of a format to export to: what it can hold, and a function that plans its files."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from tensorkeep.arrays import TensorToWrite
from tensorkeep.transport import ByteSink


class Content(msgspec.Struct, frozen=True):
    """What to write.

    Attributes:
        tensors: Name to tensor, in the order of the source. `buffers()` yields the elements in C order, little
            endian, in pieces of bounded size; take each tensor's when it is written.
        metadata: Free text by key, without what safetensors files say of themselves.
        ties: Name to the first name of the same tensor; both are in `tensors`.
        encoding: One of the format's own encodings, if the caller asked for it; see `ExportFormat.encodings`.
        beside: Names of the files in the directory of the target.
    """

    tensors: Mapping[str, TensorToWrite]
    metadata: Mapping[str, str]
    ties: Mapping[str, str]
    encoding: str | None = None
    beside: frozenset[str] = frozenset()


class OutputFile(msgspec.Struct, frozen=True):
    """One file to write.

    Attributes:
        name: Its name in the directory of the target.
        write: Writes all of it. Files are written in order, so a later one may contain what an earlier one found,
            such as checksums; `ByteSink.rewrite` sets earlier bytes of the same file.
    """

    name: str
    write: Callable[[ByteSink], None]


class Plan(msgspec.Struct, frozen=True):
    """What a format makes of some content. It was made without reading a tensor.

    Attributes:
        files: In the order in which they are written. They appear together, the last one last, so it is the one that
            readers look for, such as an index; the others must be new under their names or of no use without it.
        replaced: Names of other files that the new ones replace, and that are removed when these are there.
        opened: Name of the file by which the export is opened again; None for the last.
        names: Name of a tensor to its name in the new file, for those that differ when it is opened.
        encoded: Names of tensors whose elements the format stores in another encoding, so that they cannot be
            compared with the source.
    """

    files: tuple[OutputFile, ...]
    replaced: frozenset[str] = frozenset()
    opened: str | None = None
    names: Mapping[str, str] = {}
    encoded: frozenset[str] = frozenset()


def _any_name(_: str) -> str | None:
    return None


class ExportFormat(msgspec.Struct, frozen=True, kw_only=True):
    """One format to export to.

    Attributes:
        key: What callers name it, such as `"npz"`.
        what: What its files are, for people: `"a NumPy archive"`.
        suffixes: Suffixes of its files, in lower case; the longest one of all formats that fits decides.
        dtypes: Names of the dtypes that it can hold.
        plan: Plans the files for some content, given the name of the target without its directory.
        name_problem: Returns why a tensor cannot have a name; None if it can.
        max_ndim: Most dimensions of a tensor; None for any number.
        max_tensors: Most tensors; None for any number.
        holds_metadata: Whether it keeps free text.
        encodings: Encodings of its own, in lower case, that callers may name as the dtype to cast to.
        advice: Dtype that it cannot hold to what tensors of it may be, and what to do with those.
    """

    key: str
    what: str
    suffixes: tuple[str, ...]
    dtypes: frozenset[str]
    plan: Callable[[Content, str], Plan]
    name_problem: Callable[[str], str | None] = _any_name
    max_ndim: int | None = None
    max_tensors: int | None = None
    holds_metadata: bool = False
    encodings: frozenset[str] = frozenset()
    advice: Mapping[str, str] = {}

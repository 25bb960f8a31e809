"""The table of the data files that a structure refers to. Pure.

A path has two parts. The first is what the paths in the structures of that file begin with: so a database can take in
others, each in a directory of its own.
"""

from __future__ import annotations

import msgspec

from tensorkeep.errors import FormatError
from tensorkeep.formats.ocdbt._columns import Columns, joined_texts, refuse_too_many
from tensorkeep.paths import is_inside


class DataFile(msgspec.Struct, frozen=True):
    """A data file.

    Attributes:
        path: Its path below the directory of the database.
        base: What paths in its structures begin with.
    """

    path: str
    base: str


def read_files(columns: Columns, base: str) -> list[DataFile]:
    """Read the table of a structure in a file whose `base` is given."""
    n_files = columns.count()
    refuse_too_many(n_files, len(base))
    n_shared = columns.numbers(n_files - 1)
    lengths = columns.numbers(n_files)
    base_lengths = columns.numbers(n_files)
    paths = joined_texts(n_shared, columns.slices(lengths))
    return [_file(base, path, n_base) for path, n_base in zip(paths, base_lengths, strict=True)]


def _file(base: str, path: bytes, n_base: int) -> DataFile:
    try:
        return DataFile(base + path.decode(), base + path[:n_base].decode())
    except UnicodeDecodeError:
        raise FormatError(
            "a data file of the database has a name that is not text", found=f"{path[:100]!r}"
        ) from None


def file_at(files: list[DataFile], number: int) -> DataFile:
    """Return a file of a table, which must be below the directory; the file of an empty tree has no name."""
    if number >= len(files):
        raise FormatError("the database refers to a file that it does not list", found=f"number {number}")
    file = files[number]
    if not is_inside(file.path):
        raise FormatError("a data file of the database is not in its directory", found=f"{file.path!r:.100}")
    return file

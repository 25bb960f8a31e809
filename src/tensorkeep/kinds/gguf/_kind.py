"""The kind of GGUF files: how they are opened, alone or with the other shards of their model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Final

from tensorkeep.errors import FormatError, IntegrityError, RefusedError, UnsafeError
from tensorkeep.formats.gguf import GgufContents, join_shards, n_shards, parse_gguf, shard_names
from tensorkeep.kinds.base import Files, Kind, OpenOptions, Place
from tensorkeep.kinds.gguf._file import GgufFile
from tensorkeep.kinds.gguf._location import SUFFIX, find_gguf
from tensorkeep.parallel import parallel_for_each
from tensorkeep.texts import listed
from tensorkeep.transport import ByteSource, join, open_source, split

_NAME: Final = "a GGUF file"
_N_AT_ONCE: Final = 16
"""Shards whose headers are read in parallel."""


def _open(place: Place, options: OpenOptions) -> GgufFile:
    source = place.source
    contents = _parse(source)
    n = n_shards(contents)
    if n > 1:
        contents = _with_shards(place, contents, n, options)
    if options.strict and contents.unknowns:
        texts = listed(f"{unknown} at `{at}`" for at, unknown in contents.unknowns.items())
        raise UnsafeError("objects that are not known to be data", path=source.name, found=texts)
    return GgufFile(_NAME, source, contents, options)


def _parse(source: ByteSource) -> GgufContents:
    with _naming(source.name):
        contents = parse_gguf(source)
        contents.check_ranges(source)
        return contents


def _with_shards(place: Place, contents: GgufContents, n: int, options: OpenOptions) -> GgufContents:
    """Open the other shards of a model, and return all of them as one file."""
    directory, own_name = split(place.path or "")
    names = shard_names(own_name)
    if len(names) != n:
        raise IntegrityError(
            f"the file is one of {n:,} shards, and its name does not tell the others",
            path=place.source.name,
            expected=f"a name such as model-00001-of-{n:05}.gguf",
            hint="Give the shards their names again, and open one of them by its path",
        )
    with ExitStack() as opened:
        shards: dict[str, tuple[GgufContents, ByteSource]] = {own_name: (contents, place.source)}

        def open_one(name: str) -> None:
            source = open_source(join(directory, name), backend=options.backend)
            opened.callback(source.close)
            shards[name] = _parse(source), source

        parallel_for_each([name for name in names if name != own_name], open_one, n_threads=_N_AT_ONCE)
        with _naming(place.source.name):
            joined = join_shards({name: shards[name] for name in names})
        opened.pop_all()
    return joined


@contextmanager
def _naming(path: str) -> Iterator[None]:
    """Add the path to errors that have none."""
    try:
        yield
    except (FormatError, RefusedError, IntegrityError) as error:
        raise error if error.path is not None else error.with_fields(path=path) from None


def _files(place: Place) -> Files:
    directory, own_name = split(place.path or "")
    names: Sequence[str] = shard_names(own_name) or (own_name,)
    return Files(directory, own_name, tuple(names), opens_alone=len(names) == 1)


GGUF: Final[Kind[Place]] = Kind(_NAME, find_gguf, _open, files=_files, suffixes=(SUFFIX,))

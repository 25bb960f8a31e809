"""What a command has written, as lines for people and as an object for programs."""

from __future__ import annotations

import msgspec

import tensorkeep
from tensorkeep.cli.reports._json import document_lines
from tensorkeep.cli.terminal import Line, show, show_text, size_text, tensors_text


def show_written(directory: str, variant: str | None, *, seconds: float, as_json: bool) -> None:
    """Read what stands in a directory now, and say what it is."""
    written = _read(directory, variant, seconds)
    if as_json:
        show_text(document_lines(_members(written)))
    else:
        show([_line(written)])


class _Written(msgspec.Struct, frozen=True):
    """A checkpoint that was just written.

    Attributes:
        path: The directory, as the caller gave it.
        index: Name of the index, or None for a single file.
        shards: File to its bytes and the number of its tensors.
        n_tensors: Tensors of all of them.
        nbytes: Bytes of all tensors.
        seconds: How long it took.
    """

    path: str
    index: str | None
    shards: dict[str, tuple[int, int]]
    n_tensors: int
    nbytes: int
    seconds: float


def _read(directory: str, variant: str | None, seconds: float) -> _Written:
    with tensorkeep.open(directory, variant=variant) as tensors:
        described = tensors.describe()
        return _Written(
            path=directory,
            index=described.index,
            shards={file.file: (file.file_nbytes, len(file.entries)) for file in described.files},
            n_tensors=len(tensors),
            nbytes=tensors.nbytes,
            seconds=seconds,
        )


def _line(written: _Written) -> Line:
    files = next(iter(written.shards)) if written.index is None else f"{len(written.shards):,} shards"
    speed = size_text(int(written.nbytes / max(written.seconds, 1e-9)))
    tensors = f"{tensors_text(written.n_tensors)}, {size_text(written.nbytes)}"
    return [
        ("wrote ", ""),
        (written.path, "title"),
        (f": {files}, {tensors} in {written.seconds:.2f} s ({speed}/s)", ""),
    ]


def _members(written: _Written) -> dict[str, object]:
    return {
        "path": written.path,
        "index": written.index,
        "n_tensors": written.n_tensors,
        "data_nbytes": written.nbytes,
        "seconds": round(written.seconds, 3),
        "shards": (
            {"shard": name, "nbytes": nbytes, "n_tensors": n_tensors}
            for name, (nbytes, n_tensors) in written.shards.items()
        ),
    }

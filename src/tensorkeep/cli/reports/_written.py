"""The checkpoint that a command wrote."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from tensorkeep.cli.inputs import open_any
from tensorkeep.cli.terminal import Line, replaced_text, size_text, speed_text
from tensorkeep.texts import counted

if TYPE_CHECKING:
    from tensorkeep.encryption import Key


class Written(msgspec.Struct, frozen=True):
    """A checkpoint that was just written.

    Attributes:
        path: The directory, as given.
        index: Name of the index, or None for a single file.
        shards: File name to its size in bytes and its number of tensors.
        n_tensors: Number of tensors.
        nbytes: Bytes of all tensors.
        seconds: How long it took.
        replaced: The files that it replaced or removed.
        config: Whether a changed `config.json` was written with it; None if nothing changes there.
    """

    path: str
    index: str | None
    shards: dict[str, tuple[int, int]]
    n_tensors: int
    nbytes: int
    seconds: float
    replaced: tuple[str, ...] = ()
    config: bool | None = None

    def with_config(self, is_written: bool) -> Written:
        """Return the same, and whether `config.json` was written."""
        return msgspec.structs.replace(self, config=is_written)

    def lines(self, _width: int | None) -> list[Line]:
        """Write what was written, and how fast."""
        files = next(iter(self.shards)) if self.index is None else f"{len(self.shards):,} shards"
        tensors = f"{counted(self.n_tensors, 'tensor')}, {size_text(self.nbytes)}"
        speed = speed_text(self.nbytes, self.seconds)
        config = {True: ", and config.json", False: "; config.json was not found or is elsewhere: change it too"}
        end = config.get(self.config, "") if self.config is not None else ""
        return [
            [
                ("wrote ", ""),
                (self.path, "title"),
                (f": {files}, {tensors} in {speed}{replaced_text(self.replaced)}{end}", ""),
            ]
        ]

    def members(self) -> dict[str, object]:
        """Return the same for JSON."""
        return {
            "path": self.path,
            "index": self.index,
            "n_tensors": self.n_tensors,
            "data_nbytes": self.nbytes,
            "seconds": round(self.seconds, 3),
            "replaced": self.replaced,
            **({} if self.config is None else {"config": self.config}),
            "shards": (
                {"shard": name, "nbytes": nbytes, "n_tensors": n_tensors}
                for name, (nbytes, n_tensors) in self.shards.items()
            ),
        }


def read_written(
    directory: str,
    variant: str | None,
    seconds: float,
    replaced: tuple[str, ...],
    keys: Sequence[Key] | None = None,
) -> Written:
    """Read back the headers of the checkpoint that is now in a directory."""
    with open_any(directory, keys, variant=variant) as tensors:
        described = tensors.describe()
        return Written(
            path=directory,
            index=described.index,
            shards={file.file: (file.file_nbytes, len(file.entries)) for file in described.files},
            n_tensors=len(tensors),
            nbytes=tensors.nbytes,
            seconds=seconds,
            replaced=replaced,
        )

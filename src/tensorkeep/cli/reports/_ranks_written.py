"""A checkpoint that a command divided for ranks."""

from __future__ import annotations

import msgspec

import tensorkeep
from tensorkeep.cli.terminal import Line, size_text, speed_text
from tensorkeep.texts import counted


class DividedForRanks(msgspec.Struct, frozen=True):
    """Directories of ranks that were just written.

    Attributes:
        path: The directory that has them.
        done: What each rank has.
        seconds: How long it took.
    """

    path: str
    done: tensorkeep.RankDivision
    seconds: float

    def lines(self, _width: int | None) -> list[Line]:
        """Write what was written, and how fast."""
        done = self.done
        sizes = sorted({*done.nbytes})
        each = " to ".join(size_text(nbytes) for nbytes in (sizes[0], sizes[-1])[: len(sizes)])
        tensors = f"{counted(len(done.divided), 'tensor')} divided, {len(done.whole):,} whole"
        ranks = counted(len(done.directories), "rank")
        speed = speed_text(sum(done.nbytes), self.seconds)
        return [
            [("wrote ", ""), (self.path, "title"), (f": {ranks} of {each}, {tensors} in {speed}", "")],
        ]

    def members(self) -> dict[str, object]:
        """Return the same for JSON."""
        return {
            "path": self.path,
            "seconds": round(self.seconds, 3),
            "ranks": (
                {"directory": name, "data_nbytes": nbytes}
                for name, nbytes in zip(self.done.directories, self.done.nbytes, strict=True)
            ),
            "divided": self.done.divided,
            "whole": self.done.whole,
        }

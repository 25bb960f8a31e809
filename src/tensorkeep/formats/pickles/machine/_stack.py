"""Where a pickle that is being read stands: its stack, its marks and its memo."""

from __future__ import annotations

from typing import Any, NoReturn

from tensorkeep.errors import PickleError
from tensorkeep.formats.pickles.machine._context import Context


class PickleCutError(PickleError):
    """The data ends before the pickle does.

    Attributes:
        n_needed: Bytes from the start of the data that would be needed to go on, at least.
    """

    n_needed: int = 0


class State:
    """One pickle under way.

    A mark begins a stack of its own, so that nothing below it can be taken from above.

    Attributes:
        data: Bytes that hold the pickle.
        position: The byte that is read next.
        opcode_position: Where the opcode stands that is being carried out.
        context: What the pickle shares with the others of its file.
        stack: Values since the last mark.
        marks: The stacks below the marks.
        memo: Values that were kept, by number; a dict, since numbers may be large.
        protocol: As the pickle says.
    """

    __slots__ = ("context", "data", "marks", "memo", "opcode_position", "position", "protocol", "stack")

    def __init__(self, data: bytes, start: int, context: Context) -> None:
        self.data = data
        self.position = self.opcode_position = start
        self.context = context
        self.stack: list[Any] = []
        self.marks: list[list[Any]] = []
        self.memo: dict[int, Any] = {}
        self.protocol = 0

    def take(self, nbytes: int) -> bytes:
        """Return the next bytes."""
        start = self.position
        left = len(self.data) - start
        if nbytes > left:
            self.refuse_cut(nbytes, left)
        self.position = start + nbytes
        return self.data[start : self.position]

    def refuse_cut(self, nbytes: int, n_left: int) -> NoReturn:
        """Say that a value reaches beyond the end."""
        error = PickleCutError("a value reaches beyond the end", expected=f"{nbytes:,} bytes", found=f"{n_left:,}")
        error.n_needed = len(self.data) - n_left + nbytes
        raise error

    def take_number(self, nbytes: int, *, signed: bool = False) -> int:
        """Return the number in the next bytes, the lowest first."""
        return int.from_bytes(self.take(nbytes), "little", signed=signed)

    def take_line(self, max_nbytes: int) -> bytes:
        """Return the next bytes up to a newline, which is left out."""
        end = self.data.find(b"\n", self.position, self.position + max_nbytes + 1)
        if end < 0:
            if len(self.data) - self.position <= max_nbytes:
                raise PickleCutError("a line has no end")
            raise PickleError("a line is too long", expected=f"at most {max_nbytes:,} bytes")
        line = self.data[self.position : end]
        self.position = end + 1
        return line

    def take_marked(self) -> list[Any]:
        """Return the values since the last mark, and go back to the stack below it."""
        marked = self.stack
        self.stack = self.marks.pop()
        return marked

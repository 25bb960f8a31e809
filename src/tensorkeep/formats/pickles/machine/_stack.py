"""The state of a pickle that is being read: its stack, its marks and its memo."""

from __future__ import annotations

from typing import Any, NoReturn

from tensorkeep.errors import PickleError
from tensorkeep.formats.pickles.machine._context import Context


class PickleCutError(PickleError):
    """The data ends before the pickle does.

    Attributes:
        n_needed: Bytes from the start of the data that are needed to continue, at least.
    """

    n_needed: int = 0


class State:
    """One pickle that is being read.

    A mark starts a new stack, so that no opcode can take values from below it.

    Attributes:
        data: Bytes that contain the pickle.
        position: The next byte to read.
        opcode_position: Position of the opcode that is being executed.
        context: What all pickles of the file share.
        stack: Values since the last mark.
        marks: The stacks below the marks.
        memo: Number to value; a dict and not a list, since a file chooses the numbers.
        protocol: As the pickle declares.
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
        """Raise: a value extends beyond the end of the data."""
        error = PickleCutError("a value extends beyond the end", expected=f"{nbytes:,} bytes", found=f"{n_left:,}")
        error.n_needed = len(self.data) - n_left + nbytes
        raise error

    def take_number(self, nbytes: int, *, signed: bool = False) -> int:
        """Return the little-endian number in the next bytes."""
        return int.from_bytes(self.take(nbytes), "little", signed=signed)

    def take_line(self, max_nbytes: int) -> bytes:
        """Return the next bytes up to a newline, and skip that."""
        end = self.data.find(b"\n", self.position, self.position + max_nbytes + 1)
        if end < 0:
            if len(self.data) - self.position <= max_nbytes:
                raise PickleCutError("a line is not terminated")
            raise PickleError("a line is too long", expected=f"at most {max_nbytes:,} bytes")
        line = self.data[self.position : end]
        self.position = end + 1
        return line

    def take_marked(self) -> list[Any]:
        """Return the values since the last mark, and return to the stack below it."""
        marked = self.stack
        self.stack = self.marks.pop()
        return marked

"""The state of a pickle that is being read: its stack, its marks and its memo."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn

from tensorkeep.errors import PickleError
from tensorkeep.formats.pickles.machine._context import Context
from tensorkeep.formats.pickles.values import Payload


class BrokenPickleError(PickleError):
    """A pickle that no reader, ours or Python's, continues after this opcode."""


class PickleCutError(BrokenPickleError):
    """The data ends before the pickle does.

    Attributes:
        n_needed: Bytes from the start of the data that are needed to continue, at least.
        is_of_frame: Whether it ends before a frame does; one of Python's readers then reads the part that is there.
    """

    n_needed: int = 0
    is_of_frame: bool = False


class State:
    """One pickle that is being read.

    A mark starts a new stack, so that no opcode can take values from below it.

    While a frame is open, its bytes are all there is. Python's readers differ on an opcode that crosses the end of a
    frame: some continue after the frame, some read through its end.

    Attributes:
        start: Position of the pickle in all bytes.
        data: Bytes to read from: all that contain the pickle, or the open frame.
        base: Position of these bytes in all bytes.
        is_framed: Whether a frame is open.
        position: The next byte to read, in `data`.
        opcode_position: Position of the opcode that is being executed, in all bytes.
        payloads: Position in all bytes to the payload that was left out there. A frame has none. The machine only
            moves forward, so if each was taken exactly where it was, the bytes were read as all of them would be.
        n_taken: How many of these were taken.
        n_left_out: Bytes of these.
        context: What all pickles of the file share.
        stack: Values since the last mark.
        marks: The stacks below the marks.
        memo: Number to value; a dict and not a list, since a file chooses the numbers.
        protocol: As the pickle declares.
    """

    __slots__ = (
        "_all",
        "base",
        "context",
        "data",
        "is_framed",
        "marks",
        "memo",
        "n_left_out",
        "n_taken",
        "opcode_position",
        "payloads",
        "position",
        "protocol",
        "stack",
        "start",
    )

    def __init__(self, data: bytes, start: int, context: Context, payloads: Mapping[int, Payload]) -> None:
        self.data = self._all = data
        self.base = 0
        self.is_framed = False
        self.start = self.position = self.opcode_position = start
        self.context = context
        self.stack: list[Any] = []
        self.marks: list[list[Any]] = []
        self.memo: dict[int, Any] = {}
        self.protocol = 0
        self.payloads = payloads
        self.n_taken = self.n_left_out = 0

    def enter_frame(self, nbytes: int) -> None:
        """Read from the next bytes only, until all of them are read."""
        if self.is_framed:
            raise PickleError("a frame begins inside another")
        start = self.position
        left = len(self.data) - start
        if nbytes > left:
            error = self._cut("a frame extends beyond the end", nbytes, left)
            error.is_of_frame = True
            raise error
        self.data, self.base, self.is_framed = self.data[start : start + nbytes], start, True
        self.position = 0

    def leave_frame(self) -> None:
        """Read on after the frame."""
        self.position = self.base + len(self.data)
        self.data, self.base, self.is_framed = self._all, 0, False

    def take(self, nbytes: int) -> bytes:
        """Return the next bytes."""
        start = self.position
        left = len(self.data) - start
        if nbytes > left:
            self.refuse_cut(nbytes, left)
        self.position = start + nbytes
        return self.data[start : self.position]

    def take_bytes(self, length_nbytes: int, *, is_bytearray: bool = False) -> bytes | bytearray | Payload:
        """Return the next bytes after their length, or the payload that was left out in their place."""
        nbytes = self.take_number(length_nbytes)
        payload = None if self.is_framed else self.payloads.get(self.position)
        if payload is None:
            data = self.take(nbytes)
            self.note_place(data, self.position - nbytes)
            return bytearray(data) if is_bytearray else data
        if len(payload) != nbytes or payload.is_bytearray != is_bytearray:
            raise PickleError("the pickle is not read as it was outlined", expected=f"{len(payload):,} bytes")
        self.n_taken += 1
        self.n_left_out += nbytes
        return payload

    def note_place(self, data: bytes, position: int) -> None:
        """Note where a value of bytes is in the file, if that is wanted."""
        places = self.context.places
        if places is not None:
            places[id(data)] = (data, self.base + position + self.n_left_out)

    def refuse_cut(self, nbytes: int, n_left: int) -> NoReturn:
        """Raise: a value extends beyond the end of the data."""
        if self.is_framed:
            raise PickleError(
                "a value crosses the end of its frame", expected=f"{nbytes:,} bytes", found=f"{n_left:,}"
            )
        raise self._cut("a value extends beyond the end", nbytes, n_left)

    def _cut(self, message: str, nbytes: int, n_left: int) -> PickleCutError:
        error = PickleCutError(message, expected=f"{nbytes:,} bytes", found=f"{n_left:,}")
        error.n_needed = len(self.data) - n_left + nbytes
        return error

    def take_number(self, nbytes: int, *, signed: bool = False) -> int:
        """Return the little-endian number in the next bytes."""
        return int.from_bytes(self.take(nbytes), "little", signed=signed)

    def take_line(self, max_nbytes: int) -> bytes:
        """Return the next bytes up to a newline, and skip that."""
        end = self.data.find(b"\n", self.position, self.position + max_nbytes + 1)
        if end < 0:
            if len(self.data) - self.position <= max_nbytes:
                if self.is_framed:
                    raise PickleError("a line crosses the end of its frame")
                raise PickleCutError("a line is not terminated")
            raise PickleError("a line is too long", expected=f"at most {max_nbytes:,} bytes")
        line = self.data[self.position : end]
        self.position = end + 1
        return line

    def take_marked(self) -> list[Any]:
        """Return the values since the last mark, and return to the stack below it."""
        if not self.marks:
            raise BrokenPickleError("no mark is on the stack")
        marked = self.stack
        self.stack = self.marks.pop()
        return marked

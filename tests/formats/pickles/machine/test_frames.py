"""FRAME: read as all of Python's readers read it, or refused where they go different ways."""

from __future__ import annotations

import io
import pickle
import pickletools
import struct
from random import Random
from typing import Any

import pytest

from tensorkeep.errors import LimitError, PickleError
from tensorkeep.formats.pickles.limits import PickleLimits
from tensorkeep.formats.pickles.machine._context import Context
from tensorkeep.formats.pickles.machine._loop import run_pickle
from tensorkeep.formats.pickles.machine._stack import PickleCutError
from tests.support.soak import rounds

LARGE = {"large": [b"x" * 200_000, "y" * 70_000, bytearray(66_000)], "small": [str(n) for n in range(30_000)]}


def frame(content: bytes, *, n_more: int = 0) -> bytes:
    """Return a frame whose length is right, or wrong by some bytes."""
    return b"\x95" + struct.pack("<Q", len(content) + n_more) + content


def ours(data: bytes) -> tuple[Any, int]:
    return run_pickle(data, 0, Context(strict=True))


class Unbuffered(io.RawIOBase):
    """What `open(path, "rb", buffering=0)` gives: it cannot be peeked into."""

    def __init__(self, data: bytes) -> None:
        self.data = io.BytesIO(data)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        return self.data.readinto(buffer)

    def tell(self) -> int:
        return self.data.tell()


def theirs(data: bytes) -> list[tuple[Any, int]]:
    """Return what each of Python's readers gives, and where it ends."""
    read = []
    for unpickler in (pickle.Unpickler, pickle._Unpickler):  # type: ignore[attr-defined]
        for kind in (io.BytesIO, Unbuffered, lambda data: io.BufferedReader(io.BytesIO(data))):  # type: ignore[type-var]
            file = kind(data)
            read += [(unpickler(file).load(), file.tell())]
    return read


@pytest.mark.parametrize(
    "data",
    [
        pickle.dumps(LARGE, 4),
        pickle.dumps(LARGE, 5),
        pickle._dumps(LARGE, 5),  # type: ignore[attr-defined]
        pickletools.optimize(pickle.dumps(LARGE, 5)),
    ],
    ids=["in C, 4", "in C, 5", "in Python", "made smaller"],
)
def test_frames_of_picklers_are_read(data: bytes) -> None:
    assert data.count(b"\x95") > 2

    assert ours(data) == (LARGE, len(data))


@pytest.mark.parametrize("seed", range(rounds(4, 100)))
def test_frames_anywhere_are_read_as_every_reader_reads_them(seed: int) -> None:
    rng = Random(seed)
    body = pickle.dumps({"a": [1, 2.5, None, "text", b"bytes", 2**70], ("b", 1): {"c": (True, "x" * 20)}}, 3)[2:]
    places = [place for _, _, place in pickletools.genops(body) if place is not None]
    n_read = 0
    for _ in range(300):
        first, last = sorted(rng.choices(places, k=2))
        n_more = rng.choice((0, 0, 0, -1, 1, rng.randrange(-20, 20)))
        if len(body[first:last]) + n_more < 0:
            continue
        rest = body[last:]
        if rng.random() < 0.3:
            rest = frame(rest, n_more=rng.choice((0, 0, 1, -1)))
        data = b"\x80\x04" + body[:first] + frame(body[first:last], n_more=n_more) + rest + pickle.dumps(1)
        try:
            read = ours(data)
        except PickleError:
            continue
        n_read += 1
        assert all(other == read for other in theirs(data)), data
    assert n_read > 50


CROSSING = {
    "one byte": b"K\x05",
    "two bytes": b"M\x05\0",
    "four bytes": b"J\x05\0\0\0",
    "eight bytes": b"G" + bytes(8),
    "a short text": b"\x8c\x03abc",
    "a text": b"X\x03\0\0\0abc",
    "a long text": b"\x8d\x03\0\0\0\0\0\0\0abc",
    "short bytes": b"C\x03abc",
    "bytes": b"B\x03\0\0\0abc",
    "long bytes": b"\x8e\x03\0\0\0\0\0\0\0abc",
    "a bytearray": b"\x96\x03\0\0\0\0\0\0\0abc",
    "a long number": b"\x8a\x03\1\2\3",
    "a line": b"I123\n",
    "a line of text": b"Vabc\n",
    "two lines": b"ccollections\nOrderedDict\n",
    "a memo number": b"j\1\0\0\0",
}


@pytest.mark.parametrize("opcode", CROSSING.values(), ids=CROSSING)
def test_nothing_crosses_the_end_of_a_frame(opcode: bytes) -> None:
    before, after = b"\x80\x04Nr\1\0\0\x000", b"."
    for n_inside in range(1, len(opcode)):
        with pytest.raises(PickleError, match="the end of its frame") as caught:
            ours(before + frame(opcode, n_more=n_inside - len(opcode)) + after)
        assert not isinstance(caught.value, PickleCutError)
    whole = before + frame(opcode) + after
    assert ours(whole)[1] == len(whole)


def test_no_frame_begins_inside_another() -> None:
    with pytest.raises(PickleError, match="a frame begins inside another"):
        ours(b"\x80\x04" + frame(frame(b"N") + b"."))


def test_stop_is_the_last_byte_of_its_frame() -> None:
    with pytest.raises(PickleError, match="bytes of a frame follow STOP"):
        ours(b"\x80\x04" + frame(b"N.", n_more=3) + b"K\x01.")


def test_a_frame_that_is_cut_says_how_much_is_needed() -> None:
    data = b"\x80\x04" + frame(b"N.", n_more=10_000)

    with pytest.raises(PickleCutError) as caught:
        ours(data)

    assert caught.value.n_needed == len(data) + 10_000


def test_the_number_of_opcodes_is_limited_across_frames() -> None:
    data = b"\x80\x04" + frame(b"N0") * 100 + b"N."

    assert run_pickle(data, 0, Context(limits=PickleLimits(max_opcodes=500)))[0] is None
    with pytest.raises(LimitError, match="too many opcodes"):
        run_pickle(data, 0, Context(limits=PickleLimits(max_opcodes=250)))

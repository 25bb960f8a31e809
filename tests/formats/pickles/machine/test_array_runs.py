"""Arrays that follow each other: one look gives what their opcodes give, which are executed outside of frames."""

from __future__ import annotations

import pickle
import pickletools
from itertools import count
from random import Random
from typing import Any

import numpy as np
import pytest

from tensorkeep.errors import TensorkeepError
from tensorkeep.formats.pickles.machine._context import Context
from tensorkeep.formats.pickles.machine._loop import _run, _run_to_end, run_pickle
from tensorkeep.formats.pickles.machine._stack import State
from tensorkeep.formats.pickles.values import ArrayRecord, DtypeRecord, Unknown
from tests.support.soak import SEED, rounds

_PROTO_AND_FRAME_NBYTES = 2 + 9
_CHANGES = b"()KMJhjBCRabcstu\x00\x01\x02\x05\x10\x7f\x80\x85\x86\x87\x88\x89\x8c\x94\xff"
"""Opcodes of arrays, and other bytes; no frame, which must not be in another one."""


def _state() -> dict[str, Any]:
    shapes = [(3,), (2, 3), (300,), (2, 1, 2), (1, 2, 1, 2), (1, 1, 2, 1, 1), (), (0, 4), (1,) * 9]
    arrays = [np.arange(np.prod(shape)).reshape(shape) + n for n, shape in enumerate(shapes * 3)]
    state = {f"größe.{n}": array.astype("<f4") for n, array in enumerate(arrays)}
    state |= {f"columns.{n}": np.asfortranarray(np.arange(6.0).reshape(2, 3)) for n in range(3)}
    state |= {"text": "text", "number": 1, "half": np.ones(2, ">f2"), "texts": np.array(["a", "bc"])}
    shared = np.ones(3, np.int8)
    return state | {"first": shared, "second": shared, "x" * 300: shared + 1, "object": np.array([None])}


def _framed(content: bytes) -> bytes:
    return b"\x80\x04\x95" + len(content).to_bytes(8, "little") + content


def _described(value: Any) -> Any:
    """Return what a record holds."""
    match value:
        case ArrayRecord():
            return "array", value.dtype.text, value.shape, _described(value.data), value.is_fortran, value.is_scalar
        case DtypeRecord():
            return "dtype", value.text, value.is_used
        case Unknown():
            return repr(value)
        case dict():
            return [(_described(key), _described(each)) for key, each in value.items()]
        case list() | tuple():
            return type(value), [_described(each) for each in value]
    return type(value), value


def _run_through(data: bytes) -> tuple[Any, Any, Any]:
    """Run a pickle, and return everything that it left: the value, the memo and the places of bytes."""
    context = Context()
    context.places = {}
    context.allowance.grow(len(data))
    state = State(data, 0, context, {})
    _run(state, 100_000)
    n_before = data.index(b"\x95") + 9 if data[2:3] == b"\x95" else 2
    places = [(value, place - n_before) for value, place in context.places.values()]
    return _described(state.stack), {number: _described(each) for number, each in state.memo.items()}, places


@pytest.mark.parametrize("n_more", [0, 200])
def test_what_one_look_makes_and_notes_is_what_opcodes_do(n_more: int) -> None:
    state = _state() | {f"more.{n}": np.full(n + 1, n, np.uint8) for n in range(n_more)}
    content = pickle.dumps(state, protocol=4)[_PROTO_AND_FRAME_NBYTES:]

    assert _run_through(_framed(content)) == _run_through(b"\x80\x04" + content)


def test_arrays_after_the_first_take_one_look_each() -> None:
    data = pickle.dumps({f"{n}": np.full((2, n), n, "<f8") for n in range(1, 41)}, protocol=4)
    state, executed = State(data, 0, Context(), {}), count()

    while not _run_to_end(state, executed):
        state.leave_frame()

    assert next(executed) < 100 < len(list(pickletools.genops(data)))


def test_changed_bytes_give_what_their_opcodes_give() -> None:
    content = pickle.dumps(_state(), protocol=4)[_PROTO_AND_FRAME_NBYTES:]
    rng = Random(SEED)
    n_read = 0
    for _ in range(rounds(1_000, 100_000)):
        changed = bytearray(content)
        for _ in range(rng.randint(1, 2)):
            changed[rng.randrange(len(changed))] = rng.choice(_CHANGES)
        framed, plain = _outcome(_framed(bytes(changed))), _outcome(b"\x80\x04" + bytes(changed))
        assert framed == plain, bytes(changed)
        n_read += framed is not None
    assert n_read > 100


def test_memo_entries_that_an_array_replaces_are_not_its_own() -> None:
    content = pickle.dumps({"a": np.ones(2, "<f4"), "b": np.ones(2, "<f4")}, protocol=4)[_PROTO_AND_FRAME_NBYTES:]
    before, between, after = content.split(b"\x89C")
    outcomes = []
    for number in range(100):  # of the dtype, which the memo then has twice
        put, get = b"q%c" % number, b"h%c" % number
        changed = b"\x89C".join([before + put, between[:-2] + get, after])
        framed, plain = _outcome(_framed(changed)), _outcome(b"\x80\x04" + changed)
        assert framed == plain, number
        outcomes.append(framed)

    assert None in outcomes[20:]
    assert outcomes[-1] is not None


def _outcome(data: bytes) -> Any:
    """Return what a pickle holds; None if it is refused."""
    try:
        return _described(run_pickle(data, 0, Context())[0])
    except TensorkeepError:
        return None

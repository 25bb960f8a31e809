"""`eval` in a pickle is data in exactly one form, which Python itself then evaluates without running anything."""

from __future__ import annotations

import io
import pickle
import pickletools
import random
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

import tensorkeep
from tensorkeep.errors import UnsafeError
from tensorkeep.formats.pickles import audit_pickle
from tests.support.pickles.assembler import (
    build,
    call,
    dict_of,
    get,
    global_name,
    list_of,
    number,
    put,
    stream,
    text,
    tuple_of,
)
from tests.support.soak import rounds


class Dense:
    """Pickled as Paddle pickles its DenseTensor."""

    def __init__(self, array: Any) -> None:
        self.array = array

    def __reduce__(self) -> Any:
        return eval, ("data", {"data": self.array})


EVAL = global_name("builtins", "eval")
ARRAY = pickle.dumps(np.arange(3.0), 2)[2:-1]
NAMES = dict_of(text("data"), ARRAY)
DENSE = call(EVAL, text("data"), NAMES)
REBUILD = global_name("torch._tensor", "_rebuild_from_type_v2")

LOOSE = {
    "another expression": call(EVAL, text("data "), NAMES),
    "an expression in bytes": call(EVAL, b"C\x04data", NAMES),
    "two names": call(EVAL, text("data"), dict_of(text("data"), ARRAY, text("a"), NAMES)),
    "another name": call(EVAL, text("data"), dict_of(text("dat"), ARRAY)),
    "something else than an array": call(EVAL, text("data"), dict_of(text("data"), text("a"))),
    "no names": call(EVAL, text("data")),
    "locals": call(EVAL, text("data"), NAMES, b"}"),
    "its type in place of it": EVAL + tuple_of(text("data"), NAMES) + b"\x81",
    "eval as a value": list_of(DENSE, EVAL),
    "eval as a value, from the memo": list_of(EVAL + put(9) + tuple_of(text("data"), NAMES) + b"R", get(9)),
    "eval as a key": dict_of(DENSE, EVAL),
    "eval that is dropped": EVAL + b"0" + DENSE,
    "eval twice on the stack": list_of(EVAL + b"2" + tuple_of(text("data"), NAMES) + b"R"),
    "eval that another function calls": list_of(DENSE, call(REBUILD, EVAL, EVAL, tuple_of(text("1")), b"}")),
    "the dict afterwards": list_of(call(EVAL, text("data"), NAMES + put(9)), get(9)),
    "the dict before": list_of(NAMES + put(9), call(EVAL, text("data"), get(9))),
    "the arguments afterwards": list_of(EVAL + tuple_of(text("data"), NAMES) + put(9) + b"R", get(9)),
    "an attribute that is called": build(
        build(call(global_name("argparse", "Namespace")), dict_of(text("__setstate__"), EVAL)), text("1")
    ),
    "a memo entry that was eval before": list_of(
        EVAL + put(9) + tuple_of(text("data"), NAMES) + b"R", get(9), number(1) + put(9)
    ),
}


def test_the_one_form_is_an_array() -> None:
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    for protocol in range(2, 6):
        data = pickle.dumps([Dense(array), {"a": Dense(array)}, Dense(array.copy())], protocol)

        loaded = tensorkeep.open(io.BytesIO(data)).load_tree()
        audit = audit_pickle(data)

        assert np.array_equal(loaded[1]["a"], array)
        assert all(mention.is_known for mention in audit.mentions)


@pytest.mark.parametrize("name", LOOSE)
def test_everything_else_is_an_alarm(name: str) -> None:
    data = stream(LOOSE[name], protocol=3)

    audit = audit_pickle(data)

    assert any(mention.name == "eval" and not mention.is_known and mention.danger for mention in audit.mentions)
    with pytest.raises((UnsafeError, tensorkeep.errors.PickleError)):
        tensorkeep.open(data)


def test_nothing_of_eval_is_left_where_an_audit_finds_only_data() -> None:
    """Opcodes of an honest pickle are dropped, repeated and moved; Python's own reader tells what comes of it."""
    chance = random.Random(7)
    array = np.arange(2.0)
    honest = pickle.dumps([Dense(array), {"a": Dense(array)}, (Dense(array), "data")], 4)
    parts = list(pieces(honest))
    n_clean = 0
    for _ in range(rounds(3_000, 300_000)):
        changed = list(parts)
        for _ in range(chance.randint(1, 3)):
            place, other = chance.randrange(len(changed)), chance.randrange(len(changed))
            action = chance.randrange(4)
            if action == 0:
                del changed[place]
            elif action == 1:
                changed.insert(place, changed[other])
            elif action == 2:
                changed[place] = changed[other]
            else:
                changed.insert(place, chance.choice([b"2", b"0", b"h\x03", b"h\x05", b"h\x01", b"]", b"a", b"\x86"]))
        data = b"\x80\x04" + b"".join(changed) + b"."
        audit = audit_pickle(data)
        if audit.error is None and all(mention.is_known for mention in audit.mentions):
            n_clean += 1
            assert_harmless(data)
    assert n_clean > 20


def pieces(data: bytes) -> Any:
    """Yield the opcodes of a pickle of protocol 4, without PROTO, FRAME and STOP."""
    places = [(opcode.name, place) for opcode, _, place in pickletools.genops(data)] + [("END", len(data))]
    for (name, start), (_, stop) in pairwise(places):
        if name not in {"PROTO", "FRAME", "STOP"}:
            yield data[start:stop]


class Inert:
    """Stands for NumPy's arrays and dtypes, which do not survive every state."""

    def __init__(self, *args: Any) -> None:
        pass

    def __setstate__(self, state: Any) -> None:
        pass


def assert_harmless(data: bytes) -> None:
    calls: list[tuple[Any, ...]] = []

    class Spy(dict[str, Any]):
        def __call__(self, *args: Any) -> Any:
            assert args[0] == "data"
            assert list(args[1]) == ["data"]
            calls.append(args)
            args[1]["__builtins__"] = self
            return args[1]["data"]

    spy = Spy()

    class Reader(pickle.Unpickler):
        def find_class(self, module: str, name: str) -> Any:
            return spy if name == "eval" else super().find_class(module, name)

    try:
        waiting = [Reader(io.BytesIO(data)).load()]
    except AssertionError:
        raise
    except Exception:
        return
    while waiting:
        value = waiting.pop()
        assert value is not spy
        if isinstance(value, dict):
            waiting += [*value, *value.values()]
        elif isinstance(value, list | tuple):
            waiting += value

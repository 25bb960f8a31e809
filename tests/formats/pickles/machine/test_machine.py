"""The machine and Python's own readers: the same values of plain data, and never another of anything."""

from __future__ import annotations

import io
import pickle
import pickletools
from collections import Counter, OrderedDict, defaultdict, deque
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from random import Random
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from fuzz.pickle_mutations import mutated
from fuzz.pickle_seeds import seeds
from fuzz.pickles_apart import read
from tensorkeep.errors import LimitError, PickleError, TensorkeepError
from tensorkeep.formats.pickles import Unknown
from tensorkeep.formats.pickles.limits._budget import PickleLimits
from tensorkeep.formats.pickles.machine._context import Context
from tensorkeep.formats.pickles.machine._loop import run_pickle
from tensorkeep.formats.pickles.machine._opcodes import OPCODES
from tensorkeep.formats.pickles.machine._stack import PickleCutError
from tests.support.for_each import for_each
from tests.support.pickles.assembler import (
    call,
    dict_of,
    get,
    global_name,
    list_of,
    number,
    put,
    stack_name,
    stream,
    text,
    tuple_of,
)
from tests.support.soak import rounds

BUILTIN_MODULES = {"builtins", "collections", "datetime", "decimal"}
PROTOCOLS = st.integers(0, pickle.HIGHEST_PROTOCOL)
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(-(2**2000), 2**2000),
    st.floats(allow_nan=False),
    st.text(),
    st.binary(),
    st.binary().map(bytearray),
    st.complex_numbers(allow_nan=False),
    st.datetimes(timezones=st.sampled_from((None, UTC))),
    st.dates(),
    st.times(),
    st.timedeltas(),
    st.builds(range, st.integers(), st.integers(), st.integers(1, 9)),
    st.decimals(allow_nan=False, places=3, min_value=-(10**9), max_value=10**9),
)
KEYS = st.recursive(
    st.one_of(st.none(), st.integers(), st.text(), st.binary(), st.floats(allow_nan=False)),
    lambda inner: st.one_of(st.tuples(inner), st.tuples(inner, inner), st.frozensets(inner, max_size=3)),
    max_leaves=4,
)
PLAIN = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner),
        st.tuples(inner, inner, inner, inner),
        st.tuples(inner),
        st.dictionaries(KEYS, inner),
        st.dictionaries(KEYS, inner).map(OrderedDict),
        st.sets(KEYS),
        st.frozensets(KEYS),
        st.dictionaries(KEYS, st.integers()).map(Counter),
        st.lists(inner, max_size=5).map(deque),
        st.lists(inner, max_size=5).map(lambda values: deque(values, 3)),
        st.dictionaries(KEYS, inner).map(lambda values: defaultdict(list, values)),
    ),
    max_leaves=12,
)


def said(value: Any) -> str:
    """Return all that a value is in words: types, order, and what a reference names."""
    if isinstance(value, Unknown | type):
        return f"class {value.name if isinstance(value, Unknown) else value.__name__}"
    kind = type(value) if type(value).__module__ in BUILTIN_MODULES else type(value).__bases__[0]
    if issubclass(kind, list | tuple | deque):
        items = [said(item) for item in value]
    elif issubclass(kind, set | frozenset):
        items = sorted(map(said, value))
    elif issubclass(kind, dict):
        items = [f"{said(key)}: {said(item)}" for key, item in value.items()]
    else:
        items = [repr(value)]
    more = [value.maxlen] if kind is deque else [value.default_factory] if kind is defaultdict else []
    return f"{kind.__name__}({', '.join(items)}){more}"


def same(ours: Any, theirs: Any) -> bool:
    """Compare values and types; a subclass of ours stands for its type, a reference for the class that it names."""
    return said(ours) == said(theirs)


@given(value=PLAIN, protocol=PROTOCOLS)
@settings(max_examples=rounds(100, 4_000))
def test_plain_data_are_read_as_python_reads_them(value: Any, protocol: int) -> None:
    data = pickle.dumps(value, protocol)

    ours, end = run_pickle(data, 0, Context(strict=True))

    assert end == len(data)
    assert same(ours, pickle.loads(data))


@given(value=PLAIN, protocol=PROTOCOLS)
def test_a_pickle_that_python_made_smaller_is_read_too(value: Any, protocol: int) -> None:
    data = pickletools.optimize(pickle.dumps(value, protocol))

    assert same(read(data, strict=True), pickle.loads(data))


@given(value=PLAIN, protocol=PROTOCOLS, before=st.binary(max_size=20), after=st.binary(max_size=20))
def test_a_pickle_may_stand_anywhere_in_its_bytes(value: Any, protocol: int, before: bytes, after: bytes) -> None:
    data = pickle.dumps(value, protocol)

    ours, end = run_pickle(before + data + after, len(before), Context(strict=True))

    assert end == len(before) + len(data)
    assert same(ours, pickle.loads(data))


@given(value=PLAIN, protocol=PROTOCOLS, where=st.floats(0, 1, exclude_max=True))
def test_a_pickle_that_is_cut_is_said_to_be(value: Any, protocol: int, where: float) -> None:
    data = pickle.dumps(value, protocol)

    with pytest.raises(PickleCutError):
        read(data[: int(len(data) * where)])


@pytest.mark.parametrize("protocol", range(6))
def test_what_is_shared_stays_shared(protocol: int) -> None:
    inner, key = [1, 2], ("a", "b")
    members = {1, 2}
    value = {key: inner, "again": [inner, inner, key], "members": (members, members)}

    ours = read(pickle.dumps(value, protocol))

    assert ours == value
    assert ours["again"][0] is ours["again"][1] is ours["a", "b"]
    assert ours["members"][0] is ours["members"][1]
    assert next(iter(ours)) is ours["again"][2]


class Node:
    """An object that a pickle may hold; it would be imported from here."""

    def __init__(self) -> None:
        self.children: list[Any] = []


@pytest.mark.parametrize("protocol", range(6))
def test_an_object_with_a_cycle_is_one_record(protocol: int) -> None:
    node = Node()
    node.children.append(node)

    ours = read(pickle.dumps(node, protocol))

    assert type(ours) is Unknown
    assert ours.qualified_name == f"{__name__}.Node"
    assert ours.state["children"][0] is ours


@pytest.mark.parametrize(
    "value",
    [
        datetime(2024, 2, 29, 1, 2, 3, 4, fold=1),
        datetime.now(UTC),
        date.max,
        time(23, 59, 59, 999_999, fold=1),
        timedelta.min,
        Decimal("-1.50"),
        Decimal("Infinity"),
        slice(None, 3, None),
        range(10, 0, -3),
        float("-inf"),
        -0.0,
        2**7900,
        "\ud800",
        "𝄞\n\0",
        bytes(range(256)),
        {False, 0.5, None},
    ],
    ids=lambda value: f"{value!r:.30}",
)
@for_each("protocol", range(6))
def test_odd_values_are_read(value: Any, protocol: int) -> None:
    data = pickle.dumps(value, protocol)

    ours = read(data, strict=True)

    assert type(ours) is type(value)
    assert repr(ours) == repr(pickle.loads(data))


def test_a_million_of_plain_data() -> None:
    value = [{"name": f"layer.{number}", "shape": (number, 4), "scale": number / 7} for number in range(50_000)]

    assert read(pickle.dumps(value, 4), strict=True) == value


def test_the_opcodes_are_pythons() -> None:
    table = {ord(opcode.code): opcode.name for opcode in pickletools.opcodes}

    assert {code: opcode.name for code, opcode in OPCODES.items()} == table


# What Python's two readers say


class Inert:
    """What stands for everything that a stream names, in Python's readers: they import nothing here."""

    KNOWN = {
        ("builtins", name): kind
        for name, kind in {
            "set": set,
            "frozenset": frozenset,
            "bytearray": bytearray,
            "complex": complex,
            "range": range,
            "bytes": bytes,
            "slice": slice,
            "list": list,
            "int": int,
        }.items()
    } | {
        ("collections", "OrderedDict"): OrderedDict,
        ("collections", "Counter"): Counter,
        ("collections", "deque"): deque,
        ("collections", "defaultdict"): defaultdict,
        ("datetime", "date"): date,
        ("datetime", "datetime"): datetime,
        ("datetime", "timedelta"): timedelta,
        ("decimal", "Decimal"): Decimal,
    }


class RefusedName(Exception):
    """A name that these tests do not compare."""


def find(module: str, name: str) -> Any:
    if (module, name) not in Inert.KNOWN:
        raise RefusedName
    return Inert.KNOWN[module, name]


class CReader(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        return find(*renamed(module, name))


class PythonReader(pickle._Unpickler):  # type: ignore[name-defined,misc]
    def find_class(self, module: str, name: str) -> Any:
        return find(*renamed(module, name))


def renamed(module: str, name: str) -> tuple[str, str]:
    return {"__builtin__": "builtins"}.get(module, module), {"xrange": "range"}.get(name, name)


def both_read(data: bytes) -> tuple[bool, Any]:
    """Return whether both of Python's readers take a stream and agree, and what they give."""
    values = []
    for reader in (CReader, PythonReader):
        try:
            values.append(reader(io.BytesIO(data)).load())
        except Exception:
            return False, None
    return same(*values), values[0]


def has_small_numbers(data: bytes) -> bool:
    """Whether the C reader may be let at a stream, which makes a table as long as the highest memo number."""
    opcodes = pickletools.genops(data)
    return all(number < 10_000 for opcode, number, _ in opcodes if opcode.name in {"PUT", "LONG_BINPUT"})


@pytest.mark.parametrize("seed", range(4))
def test_what_both_readers_of_python_accept_is_refused_or_the_same(seed: int) -> None:
    rng = Random(seed)
    pool = seeds(plain=True)
    n_same = 0
    for _ in range(5_000):
        data = mutated(rng, pool)
        try:  # first, since what Python's readers are let at must end
            ours, end = run_pickle(data, 0, Context(strict=True, limits=PickleLimits(max_nodes=10_000)))
        except TensorkeepError:
            continue
        if has_small_numbers(data[:end]):
            is_accepted, theirs = both_read(data[:end])
            if is_accepted:
                assert same(ours, theirs), (data, ours, theirs)
                n_same += 1
    assert n_same > 500


DIFFERENCES = {
    "NEWOBJ is no call": stream(global_name("builtins", "set"), tuple_of(list_of(number(1))), b"\x81", protocol=3),
    "NEWOBJ of a deque": stream(
        global_name("collections", "deque"), tuple_of(list_of(number(1))), b"\x81", protocol=3
    ),
    "NEWOBJ of a Counter": stream(
        global_name("collections", "Counter"), tuple_of(dict_of(text("a"), number(1))), b"\x81", protocol=3
    ),
    "NEWOBJ_EX of a Counter": stream(
        global_name("collections", "Counter"), b")", dict_of(text("a"), number(1)), b"\x92"
    ),
    "a name of Python 2 off the stack": stream(call(stack_name("__builtin__", "set"))),
    "a memo number twice": stream(number(1), put(0), number(2), put(0), get(0), b"\x87"),
    "MEMOIZE over a number": stream(b"K\x07q\x01K\x08\x94\x86h\x01\x86", protocol=4),
    "a protocol in the middle": stream(b"\x80\x05", b"]"),
    "POP of a mark": stream(number(1), b"(0"),
    "INT that is a bool": b"I01\n.",
    "INT in hexadecimal": b"I0x10\n.",
    "a text with escapes": b"S'\\x41\\n\\''\n.",
    "a text in raw Unicode": b"V\\u1234a\\x41\n.",
    "a key twice": stream(dict_of(number(1), number(1), b"\x88", number(2))),
    "a Counter that is set, not added": stream(
        call(global_name("collections", "Counter"), dict_of(text("a"), number(1))), text("b"), number(5), b"s"
    ),
    "a deque with a bound": stream(
        call(global_name("collections", "deque"), list_of(number(1), number(2)), number(1)), number(3), b"a"
    ),
    "pairs of Python 2": stream(
        call(global_name("collections", "OrderedDict"), list_of(list_of(text("a"), number(1))))
    ),
}


@pytest.mark.parametrize("data", DIFFERENCES.values(), ids=DIFFERENCES)
def test_where_readers_differ_easily(data: bytes) -> None:
    is_accepted, theirs = both_read(data)
    assert is_accepted
    try:
        ours = read(data, strict=True)
    except (PickleError, LimitError):
        return
    assert same(ours, theirs)

"""Any JSON value gives a tree or one of our errors, in linear time and memory, and nothing is imported or called."""

from __future__ import annotations

import collections
import contextlib
import copy
import sys
import time
import types

import msgspec
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tensorkeep.errors import FormatError, LimitError, TensorkeepError
from tensorkeep.limits import MAX_STATE_DEPTH
from tensorkeep.state import part_libraries, renamed, selected, tensor_names
from tensorkeep.state._decode import _CONTAINERS, _WHOLE
from tensorkeep.state._scalars import SCALAR_TAGS
from tests.support.soak import rounds
from tests.support.state.codec import decode, encode
from tests.support.state.states import CLASSES, Config, Flags, Moments, Phase, Point, states

TAGS = sorted({*_CONTAINERS, *_WHOLE, *SCALAR_TAGS})
CLASS_NAMES = [f"{cls.__module__}:{cls.__qualname__}" for cls in CLASSES] + ["os:system", "builtins:int", ""]
MANY = settings(max_examples=rounds(300, 20_000), deadline=None, suppress_health_check=list(HealthCheck))

json_scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 3),
    st.integers(-(2**70), 2**70),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=4),
    st.sampled_from([
        *CLASS_NAMES,
        "x",
        "y",
        "width",
        "options",
        "first",
        "second",
        "nan",
        "0x1f",
        "AA==",
        "WARM_UP",
    ]),
    st.sampled_from(["2026-01-01", "00:00:00", "2026-01-01T00:00:00", "1e999999999", "7ff0000000000001"]),
)
nodes = st.recursive(
    json_scalars,
    lambda inner: st.one_of(
        st.builds(lambda tag, parts: [tag, *parts], st.sampled_from(TAGS), st.lists(inner, max_size=5)),
        st.lists(inner, max_size=3),
        st.dictionaries(st.sampled_from(["name", "library", "order", "class", "grad", "zzz"]), inner, max_size=2),
        st.sampled_from([["same", 0], ["same", 1], {}, {"name": "t"}, ["timedelta", 0, 0, 0]]),
    ),
    max_leaves=14,
)


class AnyTensors(dict):
    def __missing__(self, name):
        return np.zeros(2, np.uint8)


def read(tree):
    """Do all that can be done with nodes; give what decoding them gave, or the error."""
    for use in (
        lambda: list(tensor_names(tree)),
        lambda: part_libraries(tree),
        lambda: renamed(tree, {}),
        lambda: selected(tree, lambda path: "a" in path),
    ):
        with contextlib.suppress(FormatError, LimitError):
            use()
    for wanted in (lambda path: len(path) % 2 == 0, None):
        try:
            made = decode(tree, AnyTensors(), classes=CLASSES, wanted=wanted)
        except (FormatError, LimitError) as error:
            made = error
    return made


@MANY
@given(nodes)
def test_any_nodes_give_a_tree_or_our_error(tree) -> None:
    modules = set(sys.modules)

    read(tree)

    assert set(sys.modules) == modules


@MANY
@given(states(), st.data())
def test_changed_nodes_give_a_tree_or_our_error(value, data) -> None:
    tree = [copy.deepcopy(encode(value).tree)]
    place, index = tree, 0
    while type(place[index]) is list and place[index] and data.draw(st.booleans()):
        place = place[index]
        index = data.draw(st.integers(0, len(place) - 1))
    change = data.draw(st.sampled_from(["replace", "drop", "double"]))
    place[index : index + 1] = {"replace": [data.draw(nodes)], "drop": [], "double": [place[index]] * 2}[change]

    read(tree[0] if tree else None)


BROKEN = {
    "no tag": [],
    "tag is no text": [["list"], 1],
    "unknown tag": ["module", "os"],
    "unknown tag in a key": ["dict", ["os"], 1],
    "key without value": ["dict", "a"],
    "key twice": ["dict", "a", 1, "a", 2],
    "equal keys": ["dict", 1, 1, True, 2],
    "key is a list": ["dict", ["list"], 1],
    "key is a tensor": ["dict", {}, 1],
    "key holds a tensor": ["dict", ["tuple", {}], 1],
    "key is long bytes": ["dict", ["bytes", {}], 1],
    "key refers": ["list", ["tuple"], ["dict", ["same", 1], 1]],
    "item twice": ["set", 1, 1.0],
    "item is a dict": ["set", ["dict"]],
    "signaling NaN is a key": ["dict", ["Decimal", "sNaN"], 1],
    "refers to itself": ["list", ["same", 0]],
    "refers to what comes": ["list", ["same", 1], ["list"]],
    "refers to nothing": ["list", ["same", -1]],
    "refers by a text": ["list", ["list"], ["same", "1"]],
    "refers by true": ["list", ["list"], ["same", True]],
    "integer with spaces": ["int", " 0x1"],
    "integer in decimal": ["int", "10"],
    "finite number by bits": ["float", "3ff0000000000000"],
    "float by a word": ["float", "infinity"],
    "complex of integers": ["complex", 1, 2],
    "text not in base64": ["str", "?"],
    "text not in UTF-8": ["str", "//8="],
    "bytes of a list": ["bytes", []],
    "range without steps": ["range", 0, 1, 0],
    "date in another form": ["date", "20260101"],
    "datetime with a zone": ["datetime", "2026-01-01T00:00:00+01:00", 0, None],
    "fold": ["time", "00:00:00", 2, None],
    "zone of two days": ["timezone", ["timedelta", 2, 0, 0], None],
    "timedelta not in its normal form": ["timedelta", 0, 100_000, 0],
    "timedelta over all": ["timedelta", 10**9, 0, 0],
    "fraction not in lowest terms": ["Fraction", 2, 4],
    "fraction over zero": ["Fraction", 1, 0],
    "long fraction": ["Fraction", ["int", "0x1" + "0" * 10_000 + "1"], 2],
    "UUID in braces": ["UUID", "{12345678-1234-5678-1234-567812345678}"],
    "deque too long": ["deque", 1, 1, 2],
    "deque of negative length": ["deque", -1],
    "deque of huge length": ["deque", ["int", "0x1" + "0" * 20]],
    "deque without length": ["deque"],
    "name is no text": ["SimpleNamespace", 1, 2],
    "attributes are no dict": ["OrderedDict", ["list"]],
    "attribute is no text": ["OrderedDict", ["dict", 1, 2]],
    "no attributes": ["OrderedDict"],
    "class is no text": ["dataclass", 1],
    "field is no text": ["dataclass", "a:B", 1, 2],
    "enum without value": ["enum", "a:B", "X"],
    "enum with a number for name": ["enum", "a:B", 1, 2],
    "composed of lists": ["composed", "torch", "x", ["list"], ["dict"]],
    "composed of three": ["composed", "torch", "x"],
    "composed by number": ["composed", "torch", "x", ["dict", 1, 2], ["dict"]],
    "strange member": ["list", {"file": "/etc/passwd"}],
    "name is a number": ["list", {"name": 1}],
    "a tensor is two": ["list", {"name": "a"}, {"name": "a", "grad": True}],
    "bytes of floats": ["bytes", {"name": "floats"}],
    "bytes of a matrix": ["bytes", {"name": "matrix"}],
}
TENSORS = AnyTensors(floats=np.zeros(3), matrix=np.zeros((2, 2), np.uint8))


@pytest.mark.parametrize("name", BROKEN)
def test_broken_nodes_are_refused_with_their_place(name: str) -> None:
    with pytest.raises(FormatError, match="spot"):
        decode(["dict", "spot", BROKEN[name]], TENSORS)


CLASS_CHANGES = {
    "field missing": (Config, ["dataclass", f"{Config.__module__}:Config", "width", 1]),
    "field more": (Config, ["dataclass", f"{Config.__module__}:Config", "width", 1, "options", 2, "__class__", 3]),
    "other kind": (Config, ["namedtuple", f"{Config.__module__}:Config", "width", 1, "options", 2]),
    "enum as dataclass": (Phase, ["dataclass", f"{Config.__module__}:Phase", "_value_", 1]),
    "no such member": (Phase, ["enum", f"{Config.__module__}:Phase", "mro", 1]),
    "other value": (Phase, ["enum", f"{Config.__module__}:Phase", "WARM_UP", 2]),
    "value of another type": (Phase, ["enum", f"{Config.__module__}:Phase", "WARM_UP", True]),
    "no such value": (Flags, ["enum", f"{Config.__module__}:Flags", None, "x"]),
    "other order": (Moments, ["namedtuple", f"{Config.__module__}:Moments", "second", 1, "first", 2]),
}


@pytest.mark.parametrize("name", CLASS_CHANGES)
def test_a_class_must_fit_what_was_saved(name: str) -> None:
    cls, node = CLASS_CHANGES[name]

    with pytest.raises(FormatError, match="is not the one that was saved"):
        decode(node, classes=[cls])


def test_a_member_that_is_gone_is_answered_with_those_that_are_there() -> None:
    with pytest.raises(FormatError, match=r"no member COOL_DOWN; it has WARM_UP"):
        decode(["enum", f"{Config.__module__}:Phase", "COOL_DOWN", 1], classes=[Phase])


def nested(depth: int, tag: str = "list") -> list:
    node: list = [tag]
    for _ in range(depth - 1):
        node = [tag, node]
    return node


@pytest.mark.parametrize("tag", ["list", "tuple", "composed", "zzz"])
@pytest.mark.parametrize("depth", [MAX_STATE_DEPTH + 2, 100_000])
def test_depth_is_bounded(tag: str, depth: int) -> None:
    with pytest.raises(TensorkeepError):
        decode(nested(depth, tag))
    if tag != "zzz":
        for use in (lambda: list(tensor_names(nested(depth))), lambda: renamed(nested(depth), {})):
            with pytest.raises(LimitError):
                use()
        with pytest.raises(LimitError):
            decode(["dict", nested(depth, "tuple"), 1])
        with pytest.raises(LimitError):
            decode(nested(depth), wanted=lambda path: False)


def test_the_deepest_tree_comes_back() -> None:
    tree = nested(MAX_STATE_DEPTH)

    assert encode(decode(tree)).tree == tree
    with pytest.raises(LimitError):
        encode([decode(tree)])


def wrapped(make, depth: int):
    value = make(0)
    for _ in range(depth - 1):
        value = make(value)
    return value


@pytest.mark.parametrize(
    "make",
    [
        lambda inner: {"a": inner},
        lambda inner: [inner, 1],
        lambda inner: Config(inner),
        lambda inner: Moments(inner),
        lambda inner: collections.OrderedDict(a=inner),
        lambda inner: collections.deque([inner]),
        lambda inner: types.SimpleNamespace(a=inner),
    ],
)
def test_everything_nests_as_deep(make) -> None:
    value = wrapped(make, MAX_STATE_DEPTH)

    tree = msgspec.json.decode(msgspec.json.encode(encode(value).tree))

    assert encode(decode(tree)).tree == tree
    with pytest.raises(LimitError, match="too deep"):
        encode(make(value))


@pytest.mark.parametrize(
    "make", [lambda inner: (inner,), lambda inner: frozenset([inner]), lambda inner: Point(inner, 1)]
)
def test_keys_nest_as_deep(make) -> None:
    key = wrapped(make, MAX_STATE_DEPTH)

    tree = msgspec.json.decode(msgspec.json.encode(encode({key: 1}).tree))

    assert encode(decode(tree)).tree == tree
    with pytest.raises(LimitError, match="too deep"):
        encode({make(key): 1})


def test_references_do_not_multiply() -> None:
    doubled = ["list", ["list"], *(["list", ["same", n], ["same", n]] for n in range(1, 400))]
    keys = ["dict", *(each for n in range(60) for each in (["tuple", n, n], n))]

    start = time.perf_counter()
    made = decode(doubled)
    assert made[1][0] is made[1][1] is made[0]
    with pytest.raises(LimitError, match=r"too often|too deep"):
        decode(doubled, wanted=lambda path: False)
    assert len(decode(keys)) == 60
    assert time.perf_counter() - start < 5  # two to the power of 400 takes longer


M61 = 2**61 - 1
SLOW_KEYS = {
    "one hash": [["int", hex(M61 * n + 5)] for n in range(2**53 // M61 + 1, 100_000)],
    "large numbers": [2**40 + n for n in range(20_000)],
    "tuples of numbers": [["tuple", n, n] for n in range(20_000)],
    "one hash in tuples": [["tuple", "a", ["int", hex(M61 * n + 5)]] for n in range(1, 2_000)],
    "fractions of floats": [n / 7 + 0.1 for n in range(20_000)],
}


@pytest.mark.parametrize("name", SLOW_KEYS)
def test_keys_that_could_be_slow_are_refused_at_once(name: str) -> None:
    start = time.perf_counter()

    with pytest.raises(LimitError, match="at most"):
        decode(["dict", *(part for key in SLOW_KEYS[name] for part in (key, 0))])
    with pytest.raises(LimitError, match="at most"):
        decode(["set", *SLOW_KEYS[name]])

    assert time.perf_counter() - start < 5


def test_many_honest_keys_are_kept() -> None:
    value = {
        **{n: n for n in range(200_000)},
        **{("a", str(n)): n for n in range(50_000)},
        **{2**40 + n: n for n in range(9_000)},
        **{str(n): n for n in range(50_000)},
    }

    assert decode(msgspec.json.decode(msgspec.json.encode(encode(value).tree))) == value


@pytest.mark.parametrize("value", [{2**40 + n for n in range(20_000)}, {n * M61: 0 for n in range(100)}])
def test_what_could_not_be_loaded_is_not_saved(value) -> None:
    with pytest.raises(LimitError, match="at most"):
        encode(value)


def test_long_paths_cost_no_memory() -> None:
    key = "k" * 1_000_000
    tree = ["dict", key, ["list", *[["list", ["list"]] for _ in range(20_000)]]]

    start = time.perf_counter()
    assert len(decode(tree)[key]) == 20_000
    assert time.perf_counter() - start < 5
    with pytest.raises(LimitError):
        list(tensor_names(["dict", key, ["list", *[{} for _ in range(100_000)]]]))
    with pytest.raises(LimitError):
        decode(tree, wanted=lambda path: False)

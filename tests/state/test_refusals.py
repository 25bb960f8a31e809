"""A value that is no data is refused with its path, its class and what to do."""

from __future__ import annotations

import array
import collections
import dataclasses
import datetime as dt
import enum
import functools
import io
import math
import re
import sys
import threading
import zoneinfo
from fractions import Fraction

import numpy as np
import pytest
import scipy.sparse
import torch

from tensorkeep.errors import LimitError, StateError
from tensorkeep.state import NamedData, classes_by_name, encode_tree
from tests.support.state.codec import encode, round_trip
from tests.support.state.states import Config, Point


class Thing:
    pass


class MyDict(dict):
    pass


@dataclasses.dataclass
class OrderedOutput(collections.OrderedDict):
    logits: int = 0


@dataclasses.dataclass(eq=False)
class ByIdentity:
    x: int = 0


@dataclasses.dataclass
class WithCache:
    x: int

    @functools.cached_property
    def double(self) -> int:
        return 2 * self.x


class Moment(dt.datetime):
    pass


class Timestamp(Moment):
    """What pandas.Timestamp is: a datetime that NumPy has a form of."""

    def to_numpy(self) -> np.datetime64:
        return np.datetime64(self)


class Wide(torch.Tensor):
    pass


MODEL = torch.nn.Linear(1, 1)
REFUSED = {
    "object": (Thing(), "Thing", "if the class is yours, make it a dataclass"),
    "module": (MODEL, "torch.nn.modules.linear.Linear", "state_dict()"),
    "optimizer": (torch.optim.SGD(MODEL.parameters()), "SGD", "state_dict()"),
    "scheduler": (torch.optim.lr_scheduler.StepLR(torch.optim.SGD(MODEL.parameters()), 1), "StepLR", "state_dict()"),
    "function": (math.sqrt, "builtin_function_or_method", "save its name"),
    "lambda": (lambda: 0, "function", "save its name"),
    "partial": (functools.partial(print), "partial", "save its name"),
    "class": (Thing, "the class tests.state.test_refusals.Thing", "save its name"),
    "generator": ((n for n in range(3)), "generator", "list(...)"),
    "array of Python": (array.array("f", [1.5]), "array.array", "numpy.asarray"),
    "view of memory": (memoryview(b"abc"), "memoryview", "numpy.asarray"),
    "file": (io.BytesIO(), "BytesIO", "belongs to this process"),
    "lock": (threading.Lock(), "lock", "leave it out"),
    "imported module": (sys, "module", "belongs to this process"),
    "dict of a class": (MyDict(), "MyDict", "Convert it with dict(...)"),
    "result": (torch.zeros(2).max(0), "return_types.max", "Convert it with tuple(...)"),
    "dict with fields": (OrderedOutput(), "OrderedOutput", "Convert it with dict(...)"),
    "masked array": (np.ma.zeros(2), "MaskedArray", "its data and its mask"),
    "matrix": (np.matrix([[1]]), "numpy.matrix", "numpy.asarray(...)"),
    "moment of pandas": (Timestamp(2026, 1, 1), "Timestamp", "to_numpy() returns"),
    "moment of a class": (Moment(2026, 1, 1), "Moment", "isoformat()"),
    "sparse matrix of scipy": (
        scipy.sparse.eye(2, format="csr"),
        "csr_",
        "the row, col, data and shape of its tocoo()",
    ),
    "pattern": (re.compile("a"), "re.Pattern", "its pattern and its flags"),
    "keys": ({}.keys(), "dict_keys", "Save list(...) of it"),
    "values": (collections.OrderedDict().values(), "odict_values", "Save list(...) of it"),
    "tensor without elements": (Wide(1).to("meta"), "Wide", "Save a plain tensor"),
    "tensor on meta": (torch.zeros(2, device="meta"), "torch.Tensor", "Device meta has no elements"),
    "tensor of a class": (torch.zeros(1).as_subclass(Wide), "Wide", "Save a plain tensor"),
}


def leaf(value):
    is_plain = type(value) in {np.ndarray, torch.Tensor, torch.nn.Parameter}
    return {} if is_plain and not getattr(value, "is_meta", False) else None


@pytest.mark.parametrize("name", REFUSED)
def test_refused_with_path_class_and_advice(name: str) -> None:
    value, found, hint = REFUSED[name]

    with pytest.raises(StateError) as caught:
        encode_tree({"optim": {"state": [Config(value)]}}, leaf=leaf, compose=lambda _: None)

    message = str(caught.value)
    assert "'optim.state.0.width'" in message
    assert found in message
    assert hint in message
    assert isinstance(caught.value, TypeError)


KEYS = {
    "tensor": ({torch.zeros(1): 0}, "tensor.item()"),
    "tensor in a tuple": ({(1, torch.zeros(1)): 0}, "tensor.item()"),
    "tensor in a set": ({torch.zeros(1)}, "tensor.item()"),
    "object": ({Thing(): 0}, "dataclass"),
    "equal only to itself": ({ByIdentity()}, "@dataclass(frozen=True)"),
    "zone": ({dt.datetime(2026, 1, 1, tzinfo=zoneinfo.ZoneInfo("Europe/Berlin"))}, "astimezone"),
    "slice of tensors": (slice(torch.zeros(1)), "tensor.item()"),
}


@pytest.mark.parametrize("name", KEYS)
def test_keys_that_are_no_data_are_refused(name: str) -> None:
    value, hint = KEYS[name]

    with pytest.raises(StateError, match="there") as caught:
        encode_tree({"there": value}, leaf=leaf, compose=lambda _: None)

    assert hint in str(caught.value)


@pytest.mark.parametrize(
    ("value", "place"),
    [
        ({Thing(): 0}, "a key of 'there' is not data"),
        ({(1, Thing()): 0}, "a key of 'there' is not data"),
        ({Thing()}, "an item of 'there' is not data"),
        ({torch.zeros(1)}, "an item of 'there' contains a tensor"),
        ({ByIdentity()}, "an item of 'there' is equal only to itself"),
        (slice(Thing()), "a bound of 'there' is not data"),
        (enum.Enum("Odd", {"A": Thing()}).A, "the value of 'there' is not data"),
        (Thing(), "'there' is not data"),
    ],
)
def test_what_is_no_data_is_told_from_what_holds_it(value, place: str) -> None:
    with pytest.raises(StateError) as caught:
        encode_tree({"there": value}, leaf=leaf, compose=lambda _: None)

    assert str(caught.value).startswith(place)


@pytest.mark.parametrize("classes", [Config, 3, enum.Enum("Phase", "A B")])
def test_classes_are_a_list(classes) -> None:
    with pytest.raises(StateError, match=r"`classes` must be a list of classes.*Pass classes=\["):
        classes_by_name(classes)


def test_cycles_are_refused_with_the_path() -> None:
    cycle: dict = {"a": [1]}
    cycle["a"].append((0, cycle))

    with pytest.raises(StateError, match=r"'a\.1\.1' .*cycle"):
        encode(cycle)


def test_one_object_in_two_places_is_no_cycle() -> None:
    shared = [1]
    point = Point(shared, shared)

    back = round_trip([shared, point, (point, shared)], classes=[Point])

    assert back[0] is back[1].x is back[1].y is back[2][1]
    assert back[1] is back[2][0]


def test_tuples_of_tuples_cannot_make_keys_endless() -> None:
    key: tuple = (1,)
    for _ in range(40):
        key = (key, key)

    with pytest.raises(LimitError, match="is too large"):
        encode({"a": slice(key)})


def test_attributes_that_are_no_fields_are_not_lost() -> None:
    config = Config(1)
    config.note = "kept nowhere"

    with pytest.raises(StateError, match=r"'c': .*'note'.*Declare it as a field"):
        encode({"c": config})


def test_what_is_only_remembered_is_no_attribute() -> None:
    value = WithCache(2)
    assert value.double == 4

    assert round_trip(value, classes=[WithCache]) == value


def test_a_field_that_was_never_set_is_refused() -> None:
    with pytest.raises(StateError, match=r"Config\.width was never set"):
        encode([object.__new__(Config)])


def test_a_long_fraction_is_refused() -> None:
    with pytest.raises(LimitError, match="numerator"):
        encode({"f": Fraction(10**6000, 7)})


@pytest.mark.parametrize(
    "arguments",
    [
        ("module", "a:B", {}),
        ("enum", "a:B", {}),
        ("dataclass", "a:B", {1: 2}),
        ("enum", "a:B", {"name": 1, "value": 2}),
    ],
)
def test_named_data_must_be_of_a_known_kind(arguments) -> None:
    with pytest.raises(StateError):
        NamedData(*arguments)


def test_named_data_is_a_value() -> None:
    first, second = (NamedData("enum", "a:B", {"name": "X", "value": (1,)}) for _ in range(2))

    assert first == second
    assert len({first, second}) == 1
    assert round_trip({first: 1}) == {first: 1}
    assert hash(NamedData("dataclass", "a:B", {"x": []})) == hash(NamedData("dataclass", "a:B", {"x": []}))
    with pytest.raises(AttributeError):
        first.kind = "dataclass"


def test_members_of_enums_are_keys_whatever_their_values() -> None:
    class Sizes(enum.Enum):
        SMALL = [1, 2]  # noqa: RUF012 - nobody changes it
        LARGE = {"a": [3]}  # noqa: RUF012

    value = {Sizes.SMALL: 1, Sizes.LARGE: 2}

    assert round_trip(value, classes=[Sizes]) == value
    assert [key.fields["name"] for key in round_trip(value)] == ["SMALL", "LARGE"]


def test_classes_are_known_by_name() -> None:
    class Local(enum.Enum):
        A = 1

    assert classes_by_name([Config]) == {f"{Config.__module__}:Config": Config}
    assert round_trip(Local.A, classes=[Local]) is Local.A
    assert round_trip({"e": Local.A})["e"].class_name.endswith(":test_classes_are_known_by_name.<locals>.Local")
    with pytest.raises(StateError, match="classes"):
        classes_by_name([f"{Config.__module__}:Config"])


def test_a_class_that_moved_is_passed_by_its_old_name() -> None:
    names = classes_by_name({"gone:Config": Config})

    assert names == {"gone:Config": Config}
    with pytest.raises(StateError, match="classes"):
        classes_by_name({"gone:Config": f"{Config.__module__}:Config"})

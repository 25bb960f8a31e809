"""Values of Python and of its libraries that people save beside tensors."""

from __future__ import annotations

import argparse
import collections
import dataclasses
import datetime as dt
import decimal
import enum
import fractions
import functools
import io
import math
import operator
import pathlib
import random
import types
import uuid
from collections.abc import Callable
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from torch import nn

from tests.support.pickles.honest_tensors import DTYPES


class Colour(enum.Enum):
    RED = "red"
    BLUE = 2


class Level(enum.IntEnum):
    LOW = 1


class Flags(enum.Flag):
    A = 1
    B = 2


class Sizes(NamedTuple):
    rows: int
    weight: Any


@dataclasses.dataclass
class Settings:
    rate: float
    sizes: list[int]
    weight: Any = None


@dataclasses.dataclass(frozen=True, slots=True)
class FrozenSettings:
    rate: float
    weight: Any = None


class Slotted:
    __slots__ = ("__dict__", "weight")

    def __init__(self) -> None:
        self.weight = torch.arange(2.0)
        self.name = "slotted"


class WithOwnState:
    def __init__(self) -> None:
        self.weight = torch.arange(3.0)

    def __getstate__(self) -> Any:
        return (self.weight, "state")

    def __setstate__(self, state: Any) -> None:
        self.weight = state[0]


class WithNew:
    def __new__(cls, *, rate: float) -> Self:
        made = super().__new__(cls)
        made.rate = rate
        return made

    def __getnewargs_ex__(self) -> Any:
        return (), {"rate": self.rate}


class Outer:
    class Inner:
        def __init__(self) -> None:
            self.weight = torch.arange(2.0)

        @staticmethod
        def made(weight: Any) -> Any:
            return weight

        @classmethod
        def default(cls) -> Any:
            return cls()


class NamedList(list):
    pass


class NamedDict(dict):
    pass


class Node:
    """Knows its parent, as the parts of a configuration do."""

    def __init__(self, parent: Node | None = None) -> None:
        self.parent = parent
        self.children: list[Node] = []
        self.weight = torch.arange(4.0)
        if parent is not None:
            parent.children.append(self)


def a_function(x: Any) -> Any:
    return x


class Tower(nn.Module):
    """Ties, buffers that are not saved, nothing under some names, containers, and modules within modules."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(5, 4, padding_idx=0)
        self.blocks = nn.ModuleList([nn.Sequential(nn.Linear(4, 4), nn.GELU(), nn.LayerNorm(4)) for _ in range(2)])
        self.norm = nn.BatchNorm1d(4)
        self.attention = nn.MultiheadAttention(4, 2)
        self.heads = nn.ModuleDict({"a": nn.Linear(4, 5, bias=False), "b": nn.Linear(4, 1)})
        self.scales = nn.ParameterList([nn.Parameter(torch.ones(2)), nn.Parameter(torch.zeros(()))])
        self.named = nn.ParameterDict({"x": nn.Parameter(torch.ones(1))})
        self.register_buffer("steps", torch.tensor(7))
        self.register_buffer("mask", torch.ones(2, 2).bool(), persistent=False)
        self.register_buffer("nothing", None)
        self.register_parameter("absent", None)
        self.heads["a"].weight = self.embedding.weight
        self.shortcut = self.blocks[0]
        self.eval()


def _cycle() -> Node:
    root = Node()
    Node(Node(root))
    return root


def _ordered_with_metadata() -> collections.OrderedDict[str, Any]:
    state = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2)).state_dict()
    assert state._metadata
    return state


_SHARED = [1, 2, torch.ones(2)]
_UTC = dt.UTC
_HERE = dt.timezone(dt.timedelta(hours=5, minutes=30), "here")

OBJECTS: dict[str, Callable[[], Any]] = {
    "numbers": lambda: [
        0,
        1,
        -1,
        255,
        256,
        65535,
        65536,
        2**31,
        -(2**31),
        2**63,
        -(2**70),
        10**40,
        True,
        False,
        None,
    ],
    "floats": lambda: [0.0, -0.0, math.inf, -math.inf, math.nan, 1e-308, 5e-324, 0.1],
    "complex": lambda: [1 + 2j, complex(-0.0, math.nan), complex(math.inf, 0)],
    "texts": lambda: ["", "a", "é", "日本", "\U0001d54f", "a" * 300, "\n\\u1234\0", "\ud800", "b" * 70_000],
    "bytes": lambda: [b"", b"a", bytes(range(256)), b"z" * 300, bytearray(b"abc"), bytearray()],
    "tuples": lambda: [(), (1,), (1, 2), (1, 2, 3), (1, 2, 3, 4), ((), ((),))],
    "sets": lambda: [set(), {1, 2, "a"}, frozenset(), frozenset({(1, 2), None}), {frozenset({1}), 2.5}],
    "keys of many types": lambda: {1: "a", "1": "b", 2.5: "c", None: "d", (1, "x"): "e", True + 1: "f", b"k": "g"},
    "range and slice": lambda: [range(3), range(10, 0, -2), slice(1, None, 2), slice(None)],
    "shared list": lambda: {"a": _SHARED, "b": [_SHARED, _SHARED]},
    "shared tuple": lambda: (lambda t: {"a": t, "b": [t, t]})((torch.ones(1), "x")),
    "OrderedDict": lambda: collections.OrderedDict(b=1, a=torch.ones(1)),
    "OrderedDict with _metadata": _ordered_with_metadata,
    "defaultdict": lambda: {
        name: collections.defaultdict(kind, {1: 2}) for name, kind in enumerate([int, list, dict, None])
    },
    "defaultdict of defaults of its own": lambda: collections.defaultdict(a_function, {"w": torch.ones(1)}),
    "defaultdict of partial": lambda: collections.defaultdict(
        functools.partial(collections.defaultdict, dict), {1: {}}
    ),
    "deque": lambda: [
        collections.deque([1, torch.ones(1)]),
        collections.deque([1, 2], maxlen=3),
        collections.deque(),
    ],
    "Counter": lambda: [collections.Counter("abca"), collections.Counter()],
    "ChainMap": lambda: collections.ChainMap({"a": torch.ones(1)}, {"b": 2}),
    "UserDict": lambda: collections.UserDict(a=torch.ones(1)),
    "namedtuple": lambda: Sizes(3, torch.ones(2)),
    "list and dict of own classes": lambda: [NamedList([1, torch.ones(1)]), NamedDict(a=torch.ones(2))],
    "Namespace": lambda: argparse.Namespace(lr=0.1, path=pathlib.PurePosixPath("/a"), sub=argparse.Namespace()),
    "Namespace with tensors": lambda: argparse.Namespace(weight=torch.ones(1)),
    "SimpleNamespace": lambda: types.SimpleNamespace(a=1, b=[torch.ones(1)]),
    "paths": lambda: [pathlib.Path("/a/b"), pathlib.Path("x"), pathlib.Path(), pathlib.PureWindowsPath("c:\\x\\y")],
    "datetime": lambda: [dt.datetime(2024, 2, 29, 12, 30, 5, 7), dt.datetime(2024, 1, 1, tzinfo=_UTC)],
    "datetime of a zone": lambda: dt.datetime(2024, 1, 1, 5, tzinfo=_HERE, fold=1),
    "date and time": lambda: [
        dt.date(1, 1, 1),
        dt.time(23, 59, 59, 999999),
        dt.time(1, tzinfo=_HERE),
    ],
    "timedelta": lambda: [dt.timedelta(days=-3, microseconds=5), dt.timedelta()],
    "timezone": lambda: [_UTC, _HERE],
    "Decimal": lambda: [decimal.Decimal(text) for text in ("1.50", "-0", "NaN", "sNaN")],
    "Decimals beyond": lambda: [decimal.Decimal("Infinity"), decimal.Decimal("-1E+500"), decimal.Decimal("1e-400")],
    "Fraction": lambda: fractions.Fraction(1, 3),
    "UUID": lambda: uuid.UUID(int=5),
    "enums": lambda: [Colour.RED, Colour.BLUE, Level.LOW, Flags.A | Flags.B],
    "enum as key": lambda: {Colour.RED: torch.ones(1), Level.LOW: 2},
    "dataclass": lambda: Settings(0.5, [1, 2], torch.ones(2)),
    "frozen dataclass": lambda: FrozenSettings(0.5, torch.ones(2)),
    "slots": Slotted,
    "own state": WithOwnState,
    "own new": lambda: WithNew(rate=0.5),
    "classes": lambda: [int, dict, nn.ReLU, Settings, collections.OrderedDict, type, object, type(None), ValueError],
    "class as key": lambda: {Settings: torch.ones(1), nn.Linear: 2},
    "functions": lambda: [a_function, len, math.sqrt, torch.relu, nn.functional.gelu, operator.add],
    "methods": lambda: [str.lower, dict.fromkeys, collections.OrderedDict.fromkeys],
    "itemgetter": lambda: operator.itemgetter(1, "a"),
    "partial": lambda: functools.partial(a_function, torch.ones(2), lr=0.1),
    "nested class": lambda: [Outer.Inner, Outer.Inner(), Outer.Inner.made],
    "method of an object": lambda: Outer.Inner.default,
    "exception": lambda: ValueError("bad", torch.ones(1)),
    "Ellipsis": lambda: [..., NotImplemented],
    "BytesIO": lambda: io.BytesIO(b"abc"),
    "cycle": _cycle,
    "random state of Python": random.getstate,
    "random state of NumPy": lambda: np.random.RandomState(1).get_state(),
    "random state of NumPy as dict": lambda: np.random.RandomState(1).get_state(legacy=False),
    "random state of torch": torch.get_rng_state,
    "generator of NumPy": lambda: np.random.default_rng(3),
    "generator of NumPy, its state": lambda: np.random.default_rng(3).bit_generator.state,
    "RandomState of NumPy": lambda: np.random.RandomState(3),
    "generator of Python": lambda: random.Random(3),
    "generator of torch": lambda: torch.Generator().manual_seed(3).get_state(),
    "Size": lambda: [torch.Size([2, 3]), torch.Size([]), torch.ones(2, 3).shape],
    "devices": lambda: [torch.device("cpu"), torch.device("cuda:1"), torch.device("cuda"), torch.device("meta")],
    "dtypes of torch": lambda: [*DTYPES, torch.qint8, torch.int4, torch.uint7, torch.quint4x2],
    "layouts": lambda: [torch.strided, torch.sparse_coo, torch.sparse_csr, torch.jagged],
    "schemes": lambda: [torch.per_tensor_affine, torch.per_channel_affine],
    "version of torch": lambda: torch.__version__,
    "nothing": lambda: None,
    "one number": lambda: 5,
    "empty dict": dict,
    "distribution": lambda: torch.distributions.Normal(torch.zeros(2), torch.ones(2)),
}
"""What it is, to what makes it: values of Python, torch and others that are no tensors."""

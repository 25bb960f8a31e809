"""Strategies for whole training states: every kind of value, shared containers, tensors that share memory."""

from __future__ import annotations

import argparse
import dataclasses
import datetime as dt
import enum
import struct
import types
from collections import Counter, OrderedDict, defaultdict, deque, namedtuple
from decimal import Decimal
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any, NamedTuple

import numpy as np
import torch
from hypothesis import strategies as st

from tensorkeep.state import NamedData

__all__ = ["CLASSES", "arrays", "keys", "scalars", "states", "tensors"]


class Phase(enum.Enum):
    WARM_UP = 1
    TRAIN = ("train", 2)
    ALIAS = 1  # noqa: PIE796 - another name for a member


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Flags(enum.Flag):
    A = 1
    B = 2
    C = 4


class Mode(enum.StrEnum):
    MIN = "min"


@dataclasses.dataclass
class Config:
    width: Any
    options: Any = None


@dataclasses.dataclass(frozen=True, slots=True)
class Point:
    x: Any
    y: Any


class Moments(NamedTuple):
    first: Any
    second: Any = None


Pair = namedtuple("Pair", ["left", "right"])  # noqa: PYI024 - the other way to make one

CLASSES = (Phase, Level, Flags, Mode, Config, Point, Moments, Pair)
"""To be passed as `classes`."""


def _float(bits: int) -> float:
    return struct.unpack(">d", bits.to_bytes(8, "big"))[0]


_floats = st.one_of(st.floats(), st.integers(0, 2**64 - 1).map(_float), st.sampled_from([-0.0, 1e22, 5e-324, 1e308]))
_integers = st.one_of(
    st.just(4000).map(lambda n_digits: 10**n_digits),  # its repr in the strategy's would take long
    st.integers(-10, 10),
    st.integers(),
    st.sampled_from([2**53 - 1, 2**53, -(2**53), 2**63, 2**64, -(2**200)]),
)
_texts = st.one_of(
    st.sampled_from([
        "",
        "a",
        "b",
        "weight",
        "a.b",
        "#2",
        "0",
        "__metadata__",
        "\ud800",
        "\udfff\ud800",
        "é",
        "\0\n",
    ]),
    st.text(max_size=6),
    st.text(st.characters(categories=["Cs", "Ll"]), max_size=4),
)
_zones = st.one_of(
    st.none(),
    st.just(dt.UTC),
    st.timedeltas(dt.timedelta(hours=-23), dt.timedelta(hours=23)).map(dt.timezone),
    st.just(dt.timezone(dt.timedelta(hours=1), "MEZ")),
)
_hashable_scalars = st.one_of(
    st.none(),
    st.booleans(),
    _integers,
    _floats,
    _texts,
    st.builds(complex, _floats, _floats),
    st.binary(max_size=8),
    st.dates(),
    st.builds(lambda at, fold, zone: at.replace(fold=fold, tzinfo=zone), st.datetimes(), st.integers(0, 1), _zones),
    st.builds(lambda at, fold, zone: at.replace(fold=fold, tzinfo=zone), st.times(), st.integers(0, 1), _zones),
    st.timedeltas(),
    _zones,
    st.decimals(allow_nan=False),
    st.sampled_from([Decimal("NaN123"), Decimal("-Infinity"), Decimal("1e-1000"), Decimal("-0.00")]),
    st.fractions(),
    st.uuids(),
    st.sampled_from([Path("a/b"), Path("/"), PurePosixPath("x/é"), PureWindowsPath("C:/x"), Path("\udc80")]),
    st.builds(range, st.integers(-5, 5), st.integers(-5, 2**70), st.integers(1, 3)),
    st.just(...),
    st.sampled_from([*Phase, *Level, *Flags, Flags.A | Flags.C, Flags(0), *Mode]),
)
scalars = st.one_of(
    _hashable_scalars,
    st.binary(max_size=8).map(bytearray),
    st.sampled_from([4096, 4097, 5000]).map(lambda nbytes: (bytes(range(256)) * 20)[:nbytes]),
    st.just(Decimal("sNaN9")),
    st.builds(slice, _integers, st.none(), _texts),
)
"""Values that hold nothing else."""

keys = st.recursive(
    _hashable_scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map(tuple),
        st.frozensets(inner, max_size=3),
        st.builds(Point, inner, inner),
        st.builds(Pair, inner, inner),
    ),
    max_leaves=4,
)
"""What can be a key of a dict or an item of a set."""

_TORCH_DTYPES = (torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.uint8, torch.bool, torch.complex64)
_NUMPY_DTYPES = (np.float64, np.float32, np.int16, np.uint64, np.bool_)
_shapes = st.lists(st.integers(0, 4), max_size=4)


@st.composite
def tensors(draw: st.DrawFn) -> torch.Tensor:
    """Draw a tensor of torch: of any order in memory, with and without gradients."""
    shape = draw(_shapes)
    dtype = draw(st.sampled_from(_TORCH_DTYPES))
    tensor = torch.arange(int(np.prod(shape, dtype=int))).reshape(shape).to(dtype)
    kind = draw(st.sampled_from(["plain", "permuted", "strided", "expanded", "parameter", "buffer", "grad"]))
    if kind == "permuted":
        return tensor.permute(draw(st.permutations(range(len(shape)))))
    if kind == "strided" and shape:
        return tensor[::2]
    if kind == "expanded":
        return tensor[None].expand(3, *shape)
    if kind == "buffer":
        return torch.nn.Buffer(tensor)
    if kind in {"parameter", "grad"} and dtype.is_floating_point:
        return torch.nn.Parameter(tensor) if kind == "parameter" else tensor.requires_grad_()
    return tensor


@st.composite
def arrays(draw: st.DrawFn) -> np.ndarray[Any, Any]:
    """Draw an array of NumPy, of any order in memory."""
    shape = draw(_shapes)
    array = np.arange(int(np.prod(shape, dtype=int))).reshape(shape).astype(draw(st.sampled_from(_NUMPY_DTYPES)))
    kind = draw(st.sampled_from(["plain", "permuted", "strided"]))
    if kind == "permuted":
        return array.transpose(draw(st.permutations(range(len(shape)))))
    return array[::2] if kind == "strided" and shape else array


@st.composite
def _tied(draw: st.DrawFn) -> list[torch.Tensor]:
    """Draw tensors that share memory: the whole, slices, a transpose, an expanded row, views of other dtypes."""
    base = torch.arange(24, dtype=draw(st.sampled_from([torch.float32, torch.int64]))).reshape(4, 6)
    views = (
        base,
        base[1:3],
        base[2:],
        base.T,
        base[:, 1::2],
        base[0].expand(3, 6),
        base.view(torch.uint8),
        base.detach(),
        base[3, 5],
    )
    return draw(st.lists(st.sampled_from(views), min_size=2, max_size=5))


@st.composite
def _tied_arrays(draw: st.DrawFn) -> list[np.ndarray[Any, Any]]:
    base = np.arange(24.0).reshape(4, 6)
    views = (base, base[1:3], base[2:], base.T, base[:, 1::2], base.view(np.uint8))
    return draw(st.lists(st.sampled_from(views), min_size=2, max_size=4))


def _ordered(pairs: list[tuple[Any, Any]], attributes: dict[str, Any]) -> OrderedDict[Any, Any]:
    made = OrderedDict(pairs)
    vars(made).update(attributes)
    return made


def _counter(pairs: list[tuple[Any, Any]]) -> Counter[Any]:
    made: Counter[Any] = Counter()
    made.update(dict.fromkeys((key for key, _ in pairs), 1))
    return made


_NAMES = st.sampled_from(["lr", "_metadata", "x y", "__class__", "é"])


def _containers(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    items = st.lists(inner, max_size=4)
    pairs = st.lists(st.tuples(st.one_of(_texts, keys), inner), max_size=4)
    fields = st.dictionaries(_NAMES, inner, max_size=2)
    return st.one_of(
        items,
        items.map(tuple),
        pairs.map(dict),
        pairs.map(dict),
        st.builds(_ordered, pairs, fields),
        pairs.map(lambda each: defaultdict(list, each)),
        pairs.map(_counter),
        st.sets(keys, max_size=4),
        st.frozensets(keys, max_size=4),
        st.builds(deque, items, st.sampled_from([None, 0, 2, 9])),
        st.builds(lambda each: _space(argparse.Namespace(), each), fields),
        st.builds(lambda each: _space(types.SimpleNamespace(), each), fields),
        st.builds(Config, inner, inner),
        st.builds(Point, inner, inner),
        st.builds(Moments, inner, inner),
        st.builds(Pair, inner, inner),
        st.builds(lambda each: NamedData("dataclass", "gone.module:Class", each), fields),
        inner.map(lambda each: [each, each, {"again": each}]),  # one object in three places
    )


def _space(space: Any, fields: dict[str, Any]) -> Any:
    vars(space).update(fields)
    return space


def states(*, max_leaves: int = 12) -> st.SearchStrategy[Any]:
    """Return a strategy of whole states, with tensors of NumPy and torch in them, some of which share memory.

    Args:
        max_leaves: Values that hold nothing else.
    """
    leaves = st.one_of(scalars, tensors(), arrays(), _tied(), _tied_arrays())
    return st.recursive(leaves, _containers, max_leaves=max_leaves)

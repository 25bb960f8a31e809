"""Says whether a loaded tree is exactly the one that was saved: types, order, bits, and what is one object."""

from __future__ import annotations

import argparse
import dataclasses
import datetime as dt
import decimal
import enum
import fractions
import pathlib
import struct
import types
import uuid
from collections import Counter, OrderedDict, defaultdict, deque
from typing import Any

import numpy as np
import torch

from tensorkeep.state import NamedData

ATOMS = (str, int, bool, bytes, type(None), type(...), range, decimal.Decimal, fractions.Fraction, uuid.UUID)
TIMES = (dt.datetime, dt.date, dt.time, dt.timedelta, dt.timezone)
DICTS = (dict, OrderedDict, Counter, defaultdict)
SEQUENCES = (list, tuple, deque)
SPACES = (argparse.Namespace, types.SimpleNamespace)
LABELS = (torch.dtype, torch.device, torch.layout, torch.memory_format, torch.Size)
_SCALARS = (*ATOMS, *TIMES, float, complex, slice, pathlib.PurePath)
COMPRESSED = {
    torch.sparse_csr: ("crow_indices", "col_indices", "values"),
    torch.sparse_csc: ("ccol_indices", "row_indices", "values"),
    torch.sparse_bsr: ("crow_indices", "col_indices", "values"),
    torch.sparse_bsc: ("ccol_indices", "row_indices", "values"),
    torch.sparse_coo: ("_indices", "_values"),
}


def assert_exactly(ours: Any, theirs: Any, *, shares_memory: bool = True) -> None:
    """Fail at the first place where a tree is not exactly another.

    Args:
        ours: What was loaded.
        theirs: What was saved. A defaultdict comes back without its factory; strides of a tensor that is not dense
            are not kept unless it shares memory.
        shares_memory: Whether tensors share memory in one where they do in the other.
    """
    comparison = _Comparison()
    comparison.compare(ours, theirs, "value")
    if shares_memory:
        comparison.compare_memory()


class _Comparison:
    """One walk through both trees."""

    def __init__(self) -> None:
        self._ours_of: dict[int, Any] = {}
        self._theirs_of: dict[int, Any] = {}
        self._kept: list[Any] = []
        self._tensors: list[tuple[str, Any, Any]] = []

    def compare(self, ours: Any, theirs: Any, at: str) -> None:  # noqa: C901 - one kind after another
        kind = type(theirs)
        assert type(ours) is kind, f"{at}: {type(ours)} is not {kind}"
        if kind in ATOMS or isinstance(theirs, pathlib.PurePath):
            assert _is_same_decimal(ours, theirs) or ours == theirs, f"{at}: {ours!r:.200} is not {theirs!r:.200}"
        elif kind in TIMES:
            assert (repr(ours), getattr(ours, "fold", 0)) == (repr(theirs), getattr(theirs, "fold", 0)), at
        elif kind in {float, complex}:
            assert _bits(ours) == _bits(theirs), f"{at}: {ours!r} is not {theirs!r}"
        elif kind is slice:
            for name in ("start", "stop", "step"):
                self.compare(getattr(ours, name), getattr(theirs, name), f"{at}.{name}")
        elif isinstance(theirs, enum.Enum):
            assert ours is theirs, f"{at}: {ours!r} is not {theirs!r}"
        elif isinstance(theirs, (*LABELS, np.dtype)):
            assert ours == theirs, f"{at}: {ours!r} is not {theirs!r}"
        elif isinstance(theirs, torch.Tensor | np.ndarray):
            self._tensor(ours, theirs, at)
        elif isinstance(theirs, np.generic):
            assert ours.dtype == theirs.dtype, at
            assert ours.tobytes() == theirs.tobytes() or repr(ours) == repr(theirs), f"{at}: {ours!r}, {theirs!r}"
        elif isinstance(theirs, torch.Generator):
            assert ours.device == theirs.device, at
            assert torch.equal(ours.get_state(), theirs.get_state()), at
        elif _is_of_scalars(theirs) or not self._was_met(ours, theirs, at):
            self._container(ours, theirs, at)

    def compare_memory(self) -> None:
        """Compare each pair of tensors: how far one lies from the other, where they overlap."""
        places = [(at, _Place(ours), _Place(theirs)) for at, ours, theirs in self._tensors]
        places = [each for each in places if each[2].start < each[2].stop]
        for i, (at, ours, theirs) in enumerate(places):
            for other_at, other_ours, other_theirs in places[:i]:
                if theirs.shares_memory(other_theirs):
                    assert ours.start - other_ours.start == theirs.start - other_theirs.start, (
                        f"{at}, {other_at}: not shared so"
                    )
                else:  # what lies between each other's elements may come back so, or apart
                    assert not ours.shares_memory(other_ours), f"{at}, {other_at}: share memory, as they did not"

    def _was_met(self, ours: Any, theirs: Any, at: str) -> bool:
        is_known = id(theirs) in self._ours_of
        if is_known or id(ours) in self._theirs_of:
            assert self._ours_of.get(id(theirs)) is ours, f"{at}: one object otherwise than it was"
            assert self._theirs_of.get(id(ours)) is theirs, f"{at}: one object otherwise than it was"
        self._ours_of[id(theirs)], self._theirs_of[id(ours)] = ours, theirs
        self._kept += [ours, theirs]  # or another object could come to the same place
        return is_known

    def _container(self, ours: Any, theirs: Any, at: str) -> None:
        kind = type(theirs)
        if kind is bytearray:
            assert ours == theirs, at
        elif kind in {set, frozenset}:
            self._set(ours, theirs, at)
        elif kind in DICTS:
            assert getattr(ours, "default_factory", None) is None, f"{at}: a factory"
            self._dict(ours, theirs, at)
            if kind is OrderedDict:
                self._dict(vars(ours), vars(theirs), f"{at}.__dict__")
        elif kind in SPACES:
            self._dict(vars(ours), vars(theirs), at)
        elif kind is NamedData:
            assert (ours.kind, ours.class_name) == (theirs.kind, theirs.class_name), at
            self._dict(ours.fields, theirs.fields, at)
        elif dataclasses.is_dataclass(theirs):
            for field in dataclasses.fields(theirs):
                self.compare(getattr(ours, field.name), getattr(theirs, field.name), f"{at}.{field.name}")
        elif kind in SEQUENCES or hasattr(theirs, "_fields"):
            assert getattr(ours, "maxlen", None) == getattr(theirs, "maxlen", None), f"{at}.maxlen"
            self._items(ours, theirs, at)
        else:
            raise AssertionError(f"{at}: {kind} is not known here")

    def _dict(self, ours: Any, theirs: Any, at: str) -> None:
        assert len(ours) == len(theirs), f"{at}: keys {list(ours)!r:.200}, {list(theirs)!r:.200}"
        for (our_key, our_item), (key, item) in zip(ours.items(), theirs.items(), strict=True):
            _KeyComparison().compare(our_key, key, f"{at} key {key!r:.50}")
            self.compare(our_item, item, f"{at}[{key!r:.50}]")

    def _items(self, ours: Any, theirs: Any, at: str) -> None:
        assert len(ours) == len(theirs), f"{at}: {len(ours)} items, not {len(theirs)}"
        for place, (own, other) in enumerate(zip(ours, theirs, strict=True)):
            self.compare(own, other, f"{at}[{place}]")

    def _set(self, ours: Any, theirs: Any, at: str) -> None:
        sides = (sorted(items, key=_sort_key) for items in (ours, theirs))
        _KeyComparison().compare(*map(list, sides), at)

    def _tensor(self, ours: Any, theirs: Any, at: str) -> None:
        assert ours.dtype == theirs.dtype, f"{at}: {ours.dtype} is not {theirs.dtype}"
        assert tuple(ours.shape) == tuple(theirs.shape), f"{at}: {ours.shape} is not {theirs.shape}"
        if isinstance(theirs, np.ndarray):
            self._array(ours, theirs, at)
        else:
            self._torch(ours, theirs, at)

    def _array(self, ours: np.ndarray[Any, Any], theirs: np.ndarray[Any, Any], at: str) -> None:
        assert ours.flags.writeable, f"{at}: read-only"
        if theirs.dtype == object:
            self._items(list(ours.flat), list(theirs.flat), at)
            return
        assert _significant(ours) == _significant(theirs), f"{at}: {ours!r:.200} is not {theirs!r:.200}"
        if theirs.flags.c_contiguous or theirs.flags.f_contiguous:
            orders = [(array.flags.c_contiguous, array.flags.f_contiguous) for array in (ours, theirs)]
            assert orders[0] == orders[1], f"{at}: memory orders {orders}"
        self._tensors.append((at, ours, theirs))

    def _torch(self, ours: torch.Tensor, theirs: torch.Tensor, at: str) -> None:
        for fact in ("layout", "device", "requires_grad", "is_quantized"):
            assert getattr(ours, fact) == getattr(theirs, fact), f"{at}.{fact}: not {getattr(theirs, fact)}"
        assert ours.is_leaf, f"{at}: has a history"
        ours, theirs = ours.detach(), theirs.detach()
        if theirs.layout in COMPRESSED:
            for name in COMPRESSED[theirs.layout]:
                self.compare(getattr(ours, name)(), getattr(theirs, name)(), f"{at}.{name}")
            return
        if theirs.is_quantized:
            assert ours.qscheme() == theirs.qscheme(), at
            self.compare(ours.int_repr(), theirs.int_repr(), f"{at}.int_repr")
            return
        if _is_dense(theirs):
            strides = [_strides(tensor) for tensor in (ours, theirs)]
            assert strides[0] == strides[1], f"{at}: strides {strides}"
        assert torch.equal(_bytes_of(ours), _bytes_of(theirs)), f"{at}: {ours} is not {theirs}"
        self._tensors.append((at, ours, theirs))


class _KeyComparison(_Comparison):
    """One walk through keys, of which it does not matter what is one object."""

    def _was_met(self, ours: Any, theirs: Any, at: str) -> bool:
        return False


def _bits(number: complex) -> bytes:
    return struct.pack(">dd", number.real, number.imag)


def _is_same_decimal(ours: Any, theirs: Any) -> bool:
    return type(theirs) is decimal.Decimal and ours.as_tuple() == theirs.as_tuple()


def _is_of_scalars(value: Any) -> bool:
    """Say whether it does not matter which object a tuple is."""
    return type(value) is tuple and all(isinstance(item, _SCALARS) for item in value)


def _sort_key(item: Any) -> str:
    if isinstance(item, frozenset):
        return "frozenset " + " ".join(sorted(map(_sort_key, item)))
    if isinstance(item, tuple):
        return "tuple " + " ".join(map(_sort_key, item))
    return f"{type(item)} {_bits(item).hex() if type(item) in {float, complex} else repr(item)}"


def _is_dense(tensor: torch.Tensor) -> bool:
    start, stop = _extent(tensor)
    return stop - start == tensor.numel() * tensor.element_size()


def _strides(tensor: torch.Tensor) -> list[tuple[int, int]]:
    pairs = zip(tensor.shape, tensor.stride(), strict=True)
    return [(size, stride) for size, stride in pairs if size > 1] if tensor.numel() else []


class _Place:
    """Where a tensor's elements are, as an array of NumPy that is never read."""

    def __init__(self, tensor: Any) -> None:
        is_array = isinstance(tensor, np.ndarray)
        self.start, self.stop = _extent(tensor)
        size = tensor.itemsize if is_array else tensor.element_size()
        strides = tensor.strides if is_array else tuple(size * stride for stride in tensor.stride())
        first = tensor.__array_interface__["data"][0] if is_array else tensor.data_ptr()
        self.__array_interface__ = {
            "version": 3,
            "typestr": f"|V{size}",
            "shape": tuple(tensor.shape),
            "strides": strides,
            "data": (first, True),
        }

    def shares_memory(self, other: _Place) -> bool:
        is_near = self.start < other.stop and other.start < self.stop
        return is_near and np.shares_memory(np.asarray(self), np.asarray(other))


def _extent(tensor: Any) -> tuple[int, int]:
    """Return the addresses of the first byte and of one past the last."""
    if isinstance(tensor, np.ndarray):
        return np.lib.array_utils.byte_bounds(tensor) if tensor.size else (0, 0)
    if not tensor.numel():
        return 0, 0
    last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return tensor.data_ptr(), tensor.data_ptr() + (last + 1) * tensor.element_size()


def _bytes_of(tensor: torch.Tensor) -> torch.Tensor:
    plain = torch.empty(tensor.shape, dtype=tensor.dtype)  # contiguous() keeps odd strides of single elements
    return plain.copy_(tensor).reshape(-1).view(torch.uint8)


def _significant(array: np.ndarray[Any, Any]) -> bytes:
    """Return the bytes of an array, without those that pad numbers of 80 bits to 16 bytes."""
    if array.dtype.char not in "gG" or np.finfo(np.longdouble).nmant != 63:
        return array.tobytes()
    return np.frombuffer(array.tobytes(), np.uint8).reshape(-1, np.dtype("g").itemsize)[:, :10].tobytes()

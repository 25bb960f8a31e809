"""Says whether what was read without running anything is what torch or pickle made by running it.

What differs by design is known by name here: a path is its text, a namespace a dict, a parameter or a tensor of a
subclass a plain tensor, a class or function a reference, any other object a record of how it would have been made.
"""

from __future__ import annotations

import argparse
import collections
import copyreg
import datetime as dt
import decimal
import functools
import pathlib
import pickle
import struct
import sys
import types
from typing import Any

import numpy as np
import torch
from torch.torch_version import TorchVersion
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from tensorkeep.formats.pickles import Label, Unknown
from tests.support.pickles.same_tensor import TensorComparison

PLAIN = (str, int, bool, bytes, bytearray, range, slice, type(None), dt.datetime, dt.date, dt.time, dt.timedelta)
AS_TEXT = (TorchVersion, pathlib.PurePath)
DICTS = (dict, collections.OrderedDict, collections.defaultdict, collections.Counter)
LISTS = (list, tuple, torch.Size, collections.deque)
SETS = (set, frozenset)
LABELS = (torch.dtype, torch.device, torch.layout, torch.qscheme, torch.memory_format)
NAMELESS = {type(None): None, type(...): ..., type(NotImplemented): NotImplemented}
FACTORIES = (None, bool, dict, float, int, list, set, str, tuple, collections.Counter, collections.OrderedDict)


def assert_same(ours: Any, theirs: Any, *, protocol: int = 2) -> None:
    """Fail at the first place where two nested values differ.

    Args:
        ours: What tensorkeep read: the loaded value, or the tree of lazy tensors.
        theirs: What running the pickle gave.
        protocol: The one that the pickle was written with, which decides how an object would be made.
    """
    _Comparison(protocol).compare(ours, theirs, "value")


def _state_of(state: Any) -> Any:
    """Return a state, or None for an empty dict: some libraries make that of an exception once they are imported."""
    return None if type(state) is dict and not state else state


class _Comparison:
    """One walk through both values; what is one object in one must be one object in the other."""

    def __init__(self, protocol: int) -> None:
        self._protocol = protocol
        self._tensors = TensorComparison()
        self._ours_of: dict[int, Any] = {}
        self._theirs_of: dict[int, Any] = {}
        self._kept: list[Any] = []

    def compare(self, ours: Any, theirs: Any, at: str) -> None:
        """Compare two values; `at` is where they stand."""
        if isinstance(theirs, torch.Tensor | torch.UntypedStorage | torch.TypedStorage):
            self._tensor(ours, theirs, at)
        elif isinstance(theirs, np.generic | np.dtype) or type(theirs) is np.ndarray:
            self._numpy(ours, theirs, at)
        elif (expected := _text_of_leaf(theirs)) is not None:
            assert _text_of_leaf(ours) == expected, f"{at}: {ours!r} is not {theirs!r}"
        elif _is_named(theirs):
            self._named(ours, theirs, at)
        elif type(theirs) in {tuple, torch.Size, frozenset} or not self._was_met(ours, theirs, at):
            self._container(ours, theirs, type(theirs), at)

    def _was_met(self, ours: Any, theirs: Any, at: str) -> bool:
        """Note two objects that may be met again."""
        is_known = id(theirs) in self._ours_of
        if is_known or id(ours) in self._theirs_of:
            assert self._ours_of.get(id(theirs)) is ours, f"{at}: shared otherwise than it was"
            assert self._theirs_of.get(id(ours)) is theirs, f"{at}: shared otherwise than it was"
        self._ours_of[id(theirs)], self._theirs_of[id(ours)] = ours, theirs
        self._kept += [ours, theirs]  # or another object could come to the same place
        return is_known

    def _tensor(self, ours: Any, theirs: Any, at: str) -> None:
        if not isinstance(theirs, torch.Tensor):
            self._tensors.compare(ours, _whole(theirs), at)
        elif is_traceable_wrapper_subclass(theirs) and not theirs.is_nested:
            self._object(ours, theirs, at)
        else:
            self._tensors.compare(ours, theirs, at)

    def _container(self, ours: Any, theirs: Any, kind: type, at: str) -> None:
        if isinstance(theirs, argparse.Namespace | types.SimpleNamespace) or kind.__name__ == "AttributeDict":
            assert type(ours) is dict, f"{at}: {type(ours)} is no dict"
            self._dict(ours, vars(theirs), at)
        elif kind not in DICTS + LISTS + SETS or getattr(theirs, "default_factory", None) not in FACTORIES:
            self._object(ours, theirs, at)
        else:
            assert type(ours) is (tuple if kind is torch.Size else kind), f"{at}: {type(ours)} is no {kind}"
            assert len(ours) == len(theirs), f"{at}: {ours!r:.200} is not {theirs!r:.200}"
            for fact in ("maxlen", "default_factory"):
                assert getattr(ours, fact, None) == getattr(theirs, fact, None), f"{at}.{fact}"
            (self._dict if kind in DICTS else self._sequence)(ours, theirs, at)

    def _dict(self, ours: Any, theirs: Any, at: str) -> None:
        for own, other in zip(ours, theirs, strict=True):
            self.compare(own, other, f"{at} key {other!r:.50}")
            self.compare(ours[own], theirs[other], f"{at}[{other!r:.50}]")
        if type(theirs) is collections.OrderedDict:
            self._dict(vars(ours), vars(theirs), f"{at}.__dict__")

    def _sequence(self, ours: Any, theirs: Any, at: str) -> None:
        if type(theirs) in SETS:
            ours, theirs = (sorted(values, key=lambda value: f"{type(value)} {value!r}") for values in (ours, theirs))
        for place, (own, other) in enumerate(zip(ours, theirs, strict=True)):
            self.compare(own, other, f"{at}[{place}]")

    def _named(self, ours: Any, theirs: Any, at: str) -> None:
        """Compare a reference; protocols below 4 look what is within a class up in it."""
        outer, _, name = theirs.__qualname__.rpartition(".")
        if not outer or self._protocol >= 4:
            self._reference(ours, f"{theirs.__module__}.{theirs.__qualname__}", at)
            return
        _assert_called(ours, "builtins.getattr", at)
        assert ours.args[1:] == (name,), f"{at}: {ours.args}"
        self._named(ours.args[0], functools.reduce(getattr, outer.split("."), sys.modules[theirs.__module__]), at)

    def _reference(self, ours: Any, name: str, at: str) -> None:
        assert type(ours) is Unknown, f"{at}: {ours!r} stands for {name}"
        assert (ours.is_reference, ours.qualified_name) == (True, name), f"{at}: {ours!r} stands for {name}"

    def _object(self, ours: Any, theirs: Any, at: str) -> None:
        """Compare a record with what Python says of how its object would be made."""
        reduced = self._reduced(theirs)
        if type(reduced) is str:
            self._reference(ours, f"{pickle.whichmodule(theirs, reduced)}.{reduced}", at)
            return
        function, args, state, values, pairs = (*reduced, None, None, None)[:5]
        name, args = self._maker(function, args)
        _assert_called(ours, name, at)
        items = list(values or ()) or dict(pairs or ()) or None
        self._kept += [args, state, items]
        self.compare(list(ours.args), args, f"{at}.args")
        self.compare(_state_of(ours.state), _state_of(state), f"{at}.state")
        self.compare(ours.items or None, items, f"{at}.items")

    def _reduced(self, theirs: Any) -> Any:
        if isinstance(theirs, type):
            return type, (NAMELESS[theirs],)
        reduce = copyreg.dispatch_table.get(type(theirs))
        return theirs.__reduce_ex__(self._protocol) if reduce is None else reduce(theirs)

    def _maker(self, function: Any, args: Any) -> tuple[str, list[Any]]:
        """Return the name of what makes an object, and its arguments, as the pickle has them."""
        if function.__name__ == "__newobj__":
            function, *args = args
        elif function.__name__ == "__newobj_ex__":
            function, args, named = args
            if self._protocol < 4:
                return "functools.partial", [functools.partial(function.__new__, function, *args, **named)]
            args = [*args, named] if named else args
        if "." in function.__qualname__ and self._protocol < 4:  # it is itself looked up by a call
            return "builtins.getattr", [function, *args]
        owner = getattr(function, "__self__", None)
        module = owner.__module__ if isinstance(owner, type) else function.__module__
        return f"{module}.{function.__qualname__}", list(args)

    def _numpy(self, ours: Any, theirs: Any, at: str) -> None:
        if isinstance(theirs, np.dtype):
            is_record = theirs.type is np.record and getattr(ours, "name", "") == "dtype"
            assert is_record or _is_same_dtype(ours, theirs), f"{at}: {ours!r} is not {theirs!r}"
        elif theirs.dtype == object:
            _assert_called(ours, "numpy.ndarray", at)
            assert ours.args == (theirs.shape,), f"{at}: {ours.args}"
            self.compare(list(ours.items), list(theirs.flat), f"{at}.items")
        else:
            assert type(ours) is type(theirs), f"{at}: {type(ours)} is not {type(theirs)}"
            _assert_same_array(ours, theirs, at)


def _text_of_leaf(value: Any) -> str | None:
    """Return kind and value of what holds nothing else, NaN and -0.0 told apart; None for all else."""
    kind = type(value)
    if kind in {float, complex}:
        return f"{kind} {struct.pack('<dd', value.real, value.imag).hex()}"
    if kind is decimal.Decimal or kind is dt.timezone:
        return f"{kind} {value!r}"
    if kind in PLAIN:
        return f"{kind} {value!r} {getattr(value, 'fold', None)}"
    if isinstance(value, AS_TEXT):
        return _text_of_leaf(str(value))
    if isinstance(value, LABELS) or kind is Label:
        return f"{value!s}"
    return None


def _is_named(value: Any) -> bool:
    """Say whether pickle writes no more than the name: of a class, or a function of a module."""
    if isinstance(value, types.BuiltinFunctionType):
        return isinstance(value.__self__, types.ModuleType)
    return isinstance(value, type | types.FunctionType) and value not in NAMELESS


def _assert_called(ours: Any, name: str, at: str) -> None:
    assert type(ours) is Unknown, f"{at}: {ours!r:.200} stands for what {name} makes"
    assert (ours.is_reference, ours.qualified_name) == (False, name), f"{at}: {ours!r} stands for what {name} makes"


def _whole(storage: Any) -> torch.Tensor:
    """Return the tensor that is all of a storage."""
    is_typed = isinstance(storage, torch.TypedStorage)
    dtype, untyped = (storage.dtype, storage.untyped()) if is_typed else (torch.uint8, storage)
    return torch.empty(0, dtype=dtype).set_(untyped, 0, (len(storage),), (1,))


def _is_same_dtype(ours: Any, theirs: np.dtype[Any]) -> bool:
    """Say whether two dtypes are the same, or one is the bytes of a structured one."""
    return ours == theirs or (theirs.names is not None and ours == np.dtype(f"V{theirs.itemsize}"))


def _assert_same_array(ours: Any, theirs: Any, at: str) -> None:
    """Compare arrays or numbers of NumPy, which gives some the byte order of the machine when it reads them."""
    is_swapped = ours.dtype != theirs.dtype and ours.dtype.newbyteorder() == theirs.dtype
    ours = ours.astype(theirs.dtype) if is_swapped else ours
    assert _is_same_dtype(ours.dtype, theirs.dtype), f"{at}: {ours.dtype!r} is not {theirs.dtype!r}"
    assert ours.shape == theirs.shape, f"{at}: {ours.shape} is not {theirs.shape}"
    if isinstance(theirs, np.ndarray):
        orders = [(array.flags.c_contiguous, array.flags.f_contiguous) for array in (ours, theirs)]
        assert orders[0] == orders[1], f"{at}: memory orders {orders}"
        assert ours.flags.writeable, at
    assert ours.tobytes() == theirs.tobytes(), f"{at}: {ours!r:.200} is not {theirs!r:.200}"

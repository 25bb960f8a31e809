"""Variables of a library's objects, and the arrays of a state that fit into them (imports NumPy)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from tensorkeep.arrays import convert_to, is_tensor
from tensorkeep.errors import StateDictMismatchError
from tensorkeep.runs._actions import Action
from tensorkeep.texts import listed

Array = npt.NDArray[Any]


class Slot(msgspec.Struct, frozen=True):
    """A variable: what it holds now can be replaced by an array of the same shape and dtype.

    Attributes:
        name: Its name in the object.
        shape: Elements along each dimension; None for any.
        dtype: NumPy's name for its dtype.
        read: Returns its elements as a tensor of the library.
        assign: Copies an array into it.
        address: Where its elements are, if what `read` returned before changes with them; else 0.
    """

    name: str
    shape: tuple[int | None, ...]
    dtype: str
    read: Callable[[], Any]
    assign: Callable[[Array], object]
    address: int = 0


def state_of_slots(slots: Sequence[Slot]) -> dict[str, Any]:
    """Return the elements of all variables by name."""
    return {slot.name: slot.read() for slot in slots}


def prepare_slots(slots: Sequence[Slot], saved: Any, part: str, kind: str, *, strict: bool) -> Iterator[Action]:
    """Check that a state fits the variables of an object of some kind, and yield the actions that assign it."""
    if not isinstance(saved, Mapping):
        raise StateDictMismatchError(
            f"{part} does not hold the variables of a {kind}", found=type(saved).__name__, hint="Nothing was changed"
        )
    own = {slot.name: slot for slot in slots}
    missing = [name for name in own if name not in saved]
    unexpected = [str(name) for name in saved if name not in own]
    arrays = {name: as_array(saved[name]) for name in own if name in saved}
    shapes = [
        (name, own[name].shape, tuple(array.shape))
        for name, array in arrays.items()
        if array is not None and not _fits(own[name].shape, array.shape)
    ]
    others = [
        f"`{name}` {own[name].dtype} here, {_said(array, saved[name])} saved"
        for name, array in arrays.items()
        if array is None or (strict and _held(array, own[name].dtype) is None)
    ]
    facts = [
        _fact("missing", missing if strict else (), "`{}`".format),
        _fact("unexpected", unexpected if strict else (), "`{}`".format),
        _fact("of another shape", shapes, lambda item: f"`{item[0]}` {list(item[1])} here, {list(item[2])} saved"),
        _fact("of another dtype", others, str),
    ]
    if any(facts):
        raise StateDictMismatchError(
            f"{part} does not fit this {kind}: " + "; ".join(filter(None, facts)),
            hint="Nothing was changed",
            missing=missing,
            unexpected=unexpected,
            mismatched=[(name, tuple(extent or 0 for extent in here), there) for name, here, there in shapes],
        )
    _refuse_own_memory(own, saved, part)
    for name, array in arrays.items():
        if array is not None:
            yield partial(_assign, own[name], array)


def as_array(value: Any) -> Array | None:
    """Return a tensor of any library as a NumPy array; None for what is no tensor."""
    if not is_tensor(value):
        return None
    return np.asarray(convert_to("numpy", value))


def _assign(slot: Slot, array: Array) -> None:
    held = _held(array, slot.dtype)
    slot.assign(np.array(array.astype(slot.dtype) if held is None else held, order="C"))


def _held(array: Array, dtype: str) -> Array | None:
    """Return an array with another dtype; None if values would be lost."""
    if array.dtype.name == dtype:
        return array
    if array.dtype.kind in "iu" and dtype.startswith(("int", "uint")):  # backends count in different integers
        converted = array.astype(dtype)
        is_same = bool((converted == array).all() and ((converted < 0) == (array < 0)).all())
        return converted if is_same else None
    return None


def _fits(expected: tuple[int | None, ...], found: tuple[int, ...]) -> bool:
    return len(expected) == len(found) and all(
        extent in (None, other) for extent, other in zip(expected, found, strict=True)
    )


def _said(array: Array | None, saved: Any) -> str:
    return type(saved).__name__ if array is None else array.dtype.name


def _fact(kind: str, items: Sequence[Any], describe: Callable[[Any], str]) -> str:
    return f"{len(items):,} {kind}: {listed(items, describe=describe)}" if items else ""


def _refuse_own_memory(own: Mapping[str, Slot], saved: Mapping[Any, Any], part: str) -> None:
    """Refuse a state that is the memory of the object itself: training has changed it since."""
    for name, slot in own.items():
        address = getattr(saved.get(name), "data_ptr", None) if slot.address else None
        if address is not None and address() == slot.address:
            raise StateDictMismatchError(
                f"`{name}` of {part} is the memory of the object itself, changed by training since the capture",
                hint="Nothing was changed. Save the state, or keep copy.deepcopy(capture(...))",
            )

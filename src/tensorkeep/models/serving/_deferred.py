"""Tensors of a checkpoint that are read where a program uses their values, and only the parts that it takes.

Loaders of inference engines give a model every tensor of a checkpoint; each layer takes its rank's part (`narrow`)
and copies it into a parameter. With these tensors, that copy reads the part, straight into the parameter.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Final, Self, TypeAlias

import torch
from torch.utils._pytree import tree_map_only

from tensorkeep.dtypes import BY_NAME
from tensorkeep.models.filling import PartJob, fill_parts
from tensorkeep.tensors import LazyTensor, LazyTensors, Region

_DEFERRED_FROM_NBYTES: Final = 2**18
"""Bytes from which a tensor is deferred; smaller ones are loaded with their neighbors."""

_LOADED_NBYTES: Final = 2**26
"""Bytes of small tensors that are loaded together."""

_Taken: TypeAlias = tuple[int | slice, ...]
"""What is taken of each dimension: one position, or a range with both ends and no step."""

_aten: Final[Any] = torch.ops.aten


class _Saved:
    """A saved tensor, and its values if a program has changed them."""

    def __init__(self, lazy: LazyTensor[torch.Tensor]) -> None:
        self.lazy = lazy
        self.changed: torch.Tensor | None = None

    def read(self, taken: _Taken) -> torch.Tensor:
        """Return a part: of the changed values a view."""
        return self.lazy[taken] if self.changed is None else self.changed[taken]

    def prepare_to_change(self) -> None:
        """Load all values, which all parts are views of from now on."""
        if self.changed is None:
            self.changed = self.lazy[...]


class DeferredTensor(torch.Tensor):
    """A part of a saved tensor, or all of it; on the CPU, as far as programs can tell.

    Parts of it are taken without reading. A copy into another tensor reads into the memory of that tensor; any other
    use reads a copy of the part.
    """

    _saved: _Saved
    _taken: _Taken

    __torch_function__: ClassVar[Any] = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(cls: type[Self], saved: _Saved, taken: _Taken) -> Self:
        shape = [item.stop - item.start for item in taken if isinstance(item, slice)]
        dtype = getattr(torch, BY_NAME[saved.lazy.dtype].torch or "")
        tensor: Self = torch.Tensor._make_wrapper_subclass(cls, shape, dtype=dtype, device=torch.device("cpu"))
        tensor._saved, tensor._taken = saved, taken
        return tensor

    def __repr__(self) -> str:  # type: ignore[override] # without contents
        return f"DeferredTensor({self._saved.lazy.name!r}, {self.dtype}, {list(self.shape)})"

    @classmethod
    def __torch_dispatch__(  # type: ignore[override] # torch calls it so
        cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Take a part, copy, or do with the values whatever is asked."""
        options = dict(kwargs or {})
        take = _TAKING.get(func)
        if take is not None and (taken := take(*args, **options)) is not None:
            return taken
        if func is _aten.copy_.default and _reads_into(*args[:2]):
            return args[0]
        for argument, value in zip(func._schema.arguments, args, strict=False):
            if argument.alias_info is not None and argument.alias_info.is_write and isinstance(value, cls):
                value._saved.prepare_to_change()
        if func is _aten._to_copy.default and options.get("device") is not None and not args[0].is_changed:
            values = args[0].values_on(options["device"])
            return values if options.get("dtype") is None else values.to(options["dtype"])
        args, options = tree_map_only(cls, cls.values, (args, options))
        return func(*args, **options)

    def __deepcopy__(self, memo: dict[int, Any]) -> torch.Tensor:
        return self.values()

    def values(self) -> torch.Tensor:
        """Return the values as a plain tensor."""
        return self._saved.read(self._taken)

    def values_on(self, device: torch.device) -> torch.Tensor:
        """Return the values on a device, to which they are read."""
        tensor: torch.Tensor = self._saved.lazy.with_framework("torch", device)[self._taken]
        return tensor

    def _part(self, dim: int, item: int | slice) -> DeferredTensor:
        """Return a part: one position or a range of a dimension, whose numbers are not negative."""
        axes = [axis for axis, taken in enumerate(self._taken) if isinstance(taken, slice)]
        axis = axes[dim]
        kept = self._taken[axis]
        first = kept.start if isinstance(kept, slice) else 0
        moved = first + item if isinstance(item, int) else slice(first + item.start, first + item.stop)
        return DeferredTensor(self._saved, (*self._taken[:axis], moved, *self._taken[axis + 1 :]))

    def read_into(self, target: torch.Tensor) -> None:
        """Read into another tensor of the same shape."""
        starts = tuple(item.start if isinstance(item, slice) else item for item in self._taken)
        stops = tuple(item.stop if isinstance(item, slice) else item + 1 for item in self._taken)
        for axis, item in enumerate(self._taken):
            if isinstance(item, int):
                target = target.unsqueeze(axis)
        fill_parts([PartJob(self._saved.lazy, Region(starts, stops), target)], lambda _: None)

    @property
    def is_changed(self) -> bool:
        """Whether a program has changed values."""
        return self._saved.changed is not None


def _reads_into(target: torch.Tensor, source: Any) -> bool:
    """Copy by reading, if it can be done."""
    if not isinstance(source, DeferredTensor) or source.is_changed or type(target) not in _PLAIN:
        return False
    if target.shape != source.shape or not torch.can_cast(source.dtype, target.dtype):
        return False
    if not target.is_meta:
        source.read_into(target)
    return True


_PLAIN: Final = {torch.Tensor, torch.nn.Parameter}


def _sliced(
    tensor: DeferredTensor, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1
) -> DeferredTensor | None:
    if step != 1:
        return None
    first, last, _ = slice(start, end).indices(tensor.shape[dim])
    return tensor._part(dim, slice(first, max(first, last)))


def _selected(tensor: DeferredTensor, dim: int, index: int) -> DeferredTensor:
    return tensor._part(dim, index % tensor.shape[dim])


def _divided(tensor: DeferredTensor, sizes: Sequence[int], dim: int = 0) -> list[DeferredTensor]:
    parts: list[DeferredTensor] = []
    start = 0
    for size in sizes:
        parts.append(tensor._part(dim, slice(start, start + size)))
        start += size
    return parts


def _split(tensor: DeferredTensor, size: int, dim: int = 0) -> list[DeferredTensor]:
    extent = tensor.shape[dim]
    return _divided(tensor, [min(size, extent - start) for start in range(0, extent, size)] or [0], dim)


def _unbound(tensor: DeferredTensor, dim: int = 0) -> list[DeferredTensor]:
    return [tensor._part(dim, index) for index in range(tensor.shape[dim])]


def _same(tensor: DeferredTensor) -> DeferredTensor:
    return DeferredTensor(tensor._saved, tensor._taken)


_TAKING: Final[dict[Any, Callable[..., Any]]] = {
    _aten.slice.Tensor: _sliced,
    _aten.select.int: _selected,
    _aten.split.Tensor: _split,
    _aten.split_with_sizes.default: _divided,
    _aten.unbind.int: _unbound,
    _aten.detach.default: _same,
    _aten.alias.default: _same,
}
"""Operations whose result is a part of a tensor; None where it is not a plain range."""


def deferred_tensors(tensors: LazyTensors[torch.Tensor]) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield all tensors of a checkpoint, opened for torch, with their names; large ones are read when they are used.

    The checkpoint must stay open for as long as they are. Small ones are loaded a few at a time.
    """
    small: list[str] = []
    nbytes = 0
    for name, lazy in tensors.items():
        if _can_be_deferred(lazy):
            yield name, DeferredTensor(_Saved(lazy), tuple(slice(0, extent) for extent in lazy.shape))
            continue
        small.append(name)
        nbytes += lazy.nbytes
        if nbytes >= _LOADED_NBYTES:
            yield from _loaded(tensors, small)
            small, nbytes = [], 0
    yield from _loaded(tensors, small)


def _can_be_deferred(lazy: LazyTensor) -> bool:
    dtype = BY_NAME.get(lazy.dtype)
    return lazy.nbytes >= _DEFERRED_FROM_NBYTES and dtype is not None and not dtype.is_packed and bool(dtype.torch)


def _loaded(tensors: LazyTensors[torch.Tensor], names: Iterable[str]) -> Iterator[tuple[str, torch.Tensor]]:
    yield from tensors.load(list(names)).items()

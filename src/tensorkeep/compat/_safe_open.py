"""`safe_open`: a file, opened lazily, with the reference's interface."""

from __future__ import annotations

import io
import os
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Generic, Self, TypeAlias, overload

import msgspec

from tensorkeep.arrays import ArrayT
from tensorkeep.compat._prefetch import PrefetchLoader, parts_of
from tensorkeep.compat.wording import (
    check_backend,
    check_count,
    check_device,
    check_framework,
    check_instance,
    check_path,
)
from tensorkeep.errors import SelectionError, TensorkeepError, TensorNotFoundError
from tensorkeep.kinds import OpenOptions, by_environment
from tensorkeep.kinds.safetensors import TensorFile, open_file
from tensorkeep.tensors import LazyTensor
from tensorkeep.transport import Openable

if TYPE_CHECKING:
    import jax
    import mlx.core as mx
    import paddle
    import tensorflow as tf
    import torch
    from numpy.typing import NDArray

    from tensorkeep.arrays import JaxName, MlxName, NumpyName, PaddleName, TensorflowName, TorchName

_Path: TypeAlias = str | os.PathLike[str]


class safe_open(Generic[ArrayT]):  # noqa: N801 - the reference's name
    """A safetensors file, opened lazily: a context manager.

        with safe_open("model.safetensors", framework="pt", device="cuda:0") as file:
            for name in file.keys():
                tensor = file.get_tensor(name)
            rows = file.get_slice("embedding.weight")[:1000]

    Only the header is read at first. Threads can share it, it works after a fork, and it can be pickled, which the
    reference's cannot, as long as the file does not change. As with the reference, torch tensors from `get_tensor`
    are views of one mapping on the CPU, so that two calls for one name see each other's writes (never the file);
    NumPy arrays own their memory. Tensors from `get_tensors` share memory with nothing.

    Args:
        filename: The file.
        framework: `"pt"` or `"torch"`, `"np"`, `"flax"`, `"tf"`, `"mlx"` or `"paddle"`; see `tensorkeep.open`.
        device: The device for torch tensors: text, the index of a CUDA device, a `torch.device`, or None for the CPU.
        backend: How to read: `"mmap"`, `"pread"`, or `"auto"`, which maps the file unless it is on a network or FUSE
            file system.

    Raises:
        TypeError: If an argument is of the wrong type.
        SourceMissingError: If there is no such file (also a FileNotFoundError).
        HeaderError: If it is not a whole safetensors file.
        TensorkeepError: If `framework`, `device` or `backend` is invalid.
        TransportError: If the file cannot be read (also an OSError).
    """

    @overload
    def __init__(
        self: safe_open[NDArray[Any]], filename: _Path, framework: NumpyName, device: Any = ..., *, backend: str = ...
    ) -> None: ...
    @overload
    def __init__(
        self: safe_open[torch.Tensor], filename: _Path, framework: TorchName, device: Any = ..., *, backend: str = ...
    ) -> None: ...
    @overload
    def __init__(
        self: safe_open[jax.Array], filename: _Path, framework: JaxName, device: Any = ..., *, backend: str = ...
    ) -> None: ...
    @overload
    def __init__(
        self: safe_open[tf.Tensor],
        filename: _Path,
        framework: TensorflowName,
        device: Any = ...,
        *,
        backend: str = ...,
    ) -> None: ...
    @overload
    def __init__(
        self: safe_open[mx.array], filename: _Path, framework: MlxName, device: Any = ..., *, backend: str = ...
    ) -> None: ...
    @overload
    def __init__(
        self: safe_open[paddle.Tensor],
        filename: _Path,
        framework: PaddleName,
        device: Any = ...,
        *,
        backend: str = ...,
    ) -> None: ...
    @overload
    def __init__(self, filename: _Path, framework: str, device: Any = ..., *, backend: str = ...) -> None: ...
    def __init__(
        self, filename: str | os.PathLike[str], framework: str, device: Any = "cpu", *, backend: str = "auto"
    ) -> None:
        self._open(check_path(filename), framework, device, backend)

    def _open(self, target: Openable, framework: str, device: Any, backend: str) -> None:
        self._library = check_framework(framework)
        self._device = check_device(device, self._library)
        options = OpenOptions(
            framework=self._library.name, device=self._device, backend=check_backend(backend), check=False
        )
        self._file: TensorFile | None = open_file(target, by_environment(options, target))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file = None

    def keys(self) -> list[str]:
        """Return the names of the tensors, sorted.

        Raises:
            TensorkeepError: If the file is closed.
        """
        return sorted(self._opened())

    def offset_keys(self) -> list[str]:
        """Return the names of the tensors, in the order of the bytes in the file.

        Raises:
            TensorkeepError: If the file is closed.
        """
        return list(self._opened())

    def metadata(self) -> dict[str, str] | None:
        """Return the file's metadata, free text by key; None if it has none.

        Raises:
            TensorkeepError: If the file is closed.
        """
        file = self._opened()
        return file.metadata if file.has_metadata else None

    def get_tensor(self, name: str) -> ArrayT:
        """Return a whole tensor.

        Args:
            name: Its name.

        Raises:
            TypeError: If `name` is not text.
            TensorNotFoundError: If there is no tensor of that name (also a KeyError).
            DtypeError: If the framework has no such dtype (also a TypeError).
            LimitError: If it has more dimensions than the framework allows.
            DeviceError: If the device is not on this machine (also a RuntimeError).
            TensorkeepError: If the file is closed.
            TransportError: If the bytes cannot be read.
        """
        lazy = self._lazy(name)
        if not self._library.gives_views:
            return lazy[...]
        view = lazy.view()
        placed: ArrayT = lazy.load() if view is None else lazy.place(view)
        return placed

    def get_tensors(self) -> dict[str, ArrayT]:
        """Return all tensors by name, in the order of the bytes in the file; faster than one by one.

        Raises:
            DtypeError: If the framework has no such dtype (also a TypeError).
            LimitError: If a tensor has more dimensions than the framework allows.
            DeviceError: If the device is not on this machine (also a RuntimeError).
            TensorkeepError: If the file is closed.
            TransportError: If the bytes cannot be read.
        """
        return self._opened().load()

    def get_slice(self, name: str) -> PySafeSlice[ArrayT]:
        """Return a tensor that is read when it is indexed: `file.get_slice("weight")[10:20, ::2]`.

        Args:
            name: The tensor's name.

        Raises:
            TypeError: If `name` is not text.
            TensorNotFoundError: If there is no tensor of that name (also a KeyError).
            TensorkeepError: If the file is closed.
        """
        return PySafeSlice(self._lazy(name), gives_views=self._library.gives_views)

    def get_tensor_meta(self, name: str) -> TensorMeta:
        """Return what the header says about a tensor; nothing else is read.

        Args:
            name: Its name.

        Raises:
            TypeError: If `name` is not text.
            TensorNotFoundError: If there is no tensor of that name (also a KeyError).
            TensorkeepError: If the file is closed.
        """
        lazy = self._lazy(name)
        return TensorMeta(lazy.dtype, list(lazy.shape), lazy.data_offsets)

    def prefetch(
        self,
        plan: dict[str, slice | None] | None = None,
        *,
        device: Any = None,
        threads: int = 8,
    ) -> PrefetchLoader:
        """Start reading tensors in the background, for any device, to hand out each one on request.

            with file.prefetch({"embedding.weight": slice(0, 1000), "head.weight": None}, device="cuda:0") as loader:
                head = loader.take("head.weight")

        The tensors share no memory. Several loaders can read one file, and you may close it while they do.

        Args:
            plan: Which tensors: name to a slice of rows without a step, or to None for the whole tensor. By default
                all tensors, whole.
            device: The device; by default that of this file.
            threads: How many threads read.

        Raises:
            TypeError: If an argument is of the wrong type.
            TensorNotFoundError: If the plan has a name that the file lacks (also a KeyError).
            DtypeError: If torch has no such dtype (also a TypeError).
            DeviceError: If the device is not on this machine (also a RuntimeError).
            LimitError: If views of shared memory would take far more memory than they share.
            TensorkeepError: If the plan is empty or its slices do not fit, the framework is not torch, `device` is
                invalid, or the file is closed.
        """
        if plan is not None:
            check_instance(plan, "plan", dict)
        n_threads = check_count(threads)
        file = self._opened()
        if not self._library.gives_views:
            raise TensorkeepError('prefetch is only compatible with framework="pt"')
        device = self._device if device is None else check_device(device, self._library)
        if plan is None:
            plan = dict.fromkeys(file)
        elif not plan:
            raise TensorkeepError("prefetch plan selects no tensors")
        for name in plan:
            if not isinstance(name, str):
                raise TensorkeepError("prefetch plan keys must be tensor names")
            self._lazy(name)
        return PrefetchLoader(parts_of(file, plan, self._library, device), n_threads)

    def _lazy(self, name: str) -> LazyTensor[ArrayT]:
        check_instance(name, "name", str)
        try:
            return self._opened()[name]
        except TensorNotFoundError as error:
            refusal = TensorNotFoundError(error.message, path=None, tensor=name)
            refusal.add_note(str(error))
            raise refusal from None

    def _opened(self) -> TensorFile:
        if self._file is None:
            raise TensorkeepError("File is closed")
        return self._file


class _safe_open_handle(safe_open[ArrayT]):  # noqa: N801 - the reference's name
    """`safe_open` for a file object, of bytes or text, instead of a path."""

    def __init__(self, f: Any, framework: str, device: Any = "cpu", *, backend: str = "auto") -> None:
        self._open(_behind(f), framework, device, backend)


def _behind(file: Any) -> Openable:
    """Return the path of a plain file, as the reference does; for other file objects, what to read from."""
    binary = getattr(file, "buffer", file)
    raw = getattr(binary, "raw", binary)
    name = getattr(raw, "name", None)
    if isinstance(name, str | bytes | os.PathLike):
        path = os.path.abspath(os.fsdecode(name))
        if not hasattr(binary, "read") and hasattr(binary, "fileno"):
            return path
        if isinstance(raw, io.FileIO) and (raw.closed or _is_at(raw, path)):
            if not raw.closed:
                file.flush()
            return path
    opened: Openable = binary
    return opened


def _is_at(file: io.FileIO, path: str) -> bool:
    """Say whether a path still leads to an open file; it may have been removed or replaced."""
    with suppress(OSError):
        return os.path.samestat(os.fstat(file.fileno()), os.stat(path))
    return False


class TensorMeta(msgspec.Struct, frozen=True):
    """What the header of a file says about a tensor.

    Attributes:
        dtype: The dtype's name in the format, such as `"F32"`.
        shape: Elements along each dimension.
        data_offsets: Half-open range of its bytes, counted from the end of the header. A view of another tensor
            that has gaps has no range of its own; its range begins at 0.
    """

    dtype: str
    shape: list[int]
    data_offsets: tuple[int, int]


class PySafeSlice(Generic[ArrayT]):
    """A tensor of a file, read when it is indexed."""

    def __init__(self, lazy: LazyTensor[ArrayT], *, gives_views: bool) -> None:
        self._lazy = lazy
        self._gives_views = gives_views

    def get_shape(self) -> list[int]:
        """Return the elements along each dimension."""
        return list(self._lazy.shape)

    def get_dtype(self) -> str:
        """Return the dtype's name in the format, such as `"F32"`."""
        return self._lazy.dtype

    def __getitem__(self, index: Any) -> ArrayT:
        """Read a part of the tensor.

        A torch tensor of a mapped file is indexed by torch, without a copy. Otherwise, and for large tensors on a
        device that copies by itself, the index means what it means to NumPy, and only the part is read. If the
        index does not fit, a note on the error names the tensor and the file: its text is the reference's.
        """
        try:
            return self._part(index)
        except IndexError as error:
            error.add_note(f"The index was for tensor `{self._lazy.name}` of {self._lazy.reader.path}")
            raise

    def _part(self, index: Any) -> ArrayT:
        view = self._lazy.view() if self._gives_views else None
        if view is not None:
            part: ArrayT = self._lazy.place(view[index])  # type: ignore[index] # a torch tensor
            return part
        try:
            return self._lazy[index]
        except SelectionError as error:
            raise SelectionError(_reference_text(index, self._lazy.shape) or error.message) from None


def _reference_text(index: Any, shape: tuple[int, ...]) -> str | None:
    """Return the reference's words for an index that does not fit; None if it has none."""
    items = index if isinstance(index, tuple) else (index,)
    return _unsupported(items) or _out_of_shape(items, shape)


def _unsupported(items: tuple[Any, ...]) -> str | None:
    if sum(item is Ellipsis for item in items) > 1:
        return "Only one ellipsis (...) is allowed in slice index"
    for position, item in enumerate(items):
        if isinstance(item, slice) and item.step == 0:
            return "Slice step must be a positive integer, got 0"
        if item is not Ellipsis and not isinstance(item, slice) and not hasattr(item, "__index__"):
            return f"Unsupported slice index at position {position}: expected slice, int, or ellipsis"
    return None


def _out_of_shape(items: tuple[Any, ...], shape: tuple[int, ...]) -> str | None:
    n_indexed = sum(item is not Ellipsis for item in items)
    spelled_out: list[Any] = []
    for item in items:
        spelled_out.extend([slice(None)] * (len(shape) - n_indexed) if item is Ellipsis else [item])
    begin = f"Error during slicing [{', '.join(map(_spell, spelled_out))}] with shape {list(shape)}: "
    if n_indexed > len(shape):
        return begin + "more slicing indexes than dimensions in tensor"
    for axis, (item, extent) in enumerate(zip(spelled_out, shape, strict=False)):
        if isinstance(item, slice):
            continue
        if item >= extent:
            return begin + f"index {item} out of bounds for tensor dimension #{axis} of size {extent}"
        if item < -extent:
            return f"Invalid index {item} for dimension {axis} of size {extent}"
    return None


def _spell(item: Any) -> str:
    if not isinstance(item, slice):
        return str(item)
    parts = ["" if part is None else str(part) for part in (item.start, item.stop)]
    return ":".join(parts) + (f":{item.step}" if item.step is not None else "")

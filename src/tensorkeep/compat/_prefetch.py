"""`PrefetchLoader`: tensors of a file, read and moved to a device by threads in the background."""

from __future__ import annotations

import atexit
import threading
from collections.abc import Iterator, Mapping
from typing import Any, Final, Self, TypeAlias
from weakref import WeakSet, finalize

from tensorkeep.arrays import Library, adapter_for
from tensorkeep.entries import TensorEntry
from tensorkeep.errors import DtypeError, TensorkeepError
from tensorkeep.kinds.safetensors import TensorFile, refuse_copies
from tensorkeep.tensors import LazyTensor, Reader
from tensorkeep.tensors.to_device import MIN_HOST_BUDGET, staging, staging_options

_MAX_THREADS: Final = 64
"""Threads of one loader, however many are asked for."""

Part: TypeAlias = tuple[LazyTensor, Any]
"""A tensor, and the index of what is read of it."""


class PrefetchLoader:
    """Tensors that threads read in the background; each is handed out once, by `take` or by iterating.

        with safe_open("model.safetensors", "pt", device="cuda") as file, file.prefetch() as loader:
            for name, tensor in loader:  # in the order in which they are ready
                ...

    You get it from `safe_open.prefetch`. Threads can share it. Tensors that nobody takes stay in memory until you
    close it.
    """

    def __init__(self, parts: Mapping[str, Part], n_threads: int) -> None:
        self._names = list(parts)
        self._reading = _Reading(parts)
        finalize(self, self._reading.stop).atexit = False  # at exit, `_stop_all` also waits
        self._reading.start(min(n_threads, len(parts), _MAX_THREADS))

    def names(self) -> list[str]:
        """Return the names of all tensors that it hands out, in the order of the bytes in the file."""
        return list(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def take(self, name: str) -> Any:
        """Return a tensor, or the rows of it that were asked for, once they are read; if that fails, raise the error.

        It is a TensorkeepError if the tensor is not in the plan or was handed out before, or if the loader is closed.
        """
        return self._reading.take(name)

    def __iter__(self) -> Iterator[tuple[str, Any]]:
        """Yield each tensor not handed out yet, with its name, as soon as it is ready."""
        yield from iter(self._reading.take_any, None)  # a loop of our own would keep each tensor for too long

    def close(self) -> None:
        """Stop reading, and release the tensors that were not handed out."""
        self._reading.stop()
        self._reading.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _Reading:
    """What a loader and its threads share; they refer only to this, so a loader that nobody holds is collected."""

    def __init__(self, parts: Mapping[str, Part]) -> None:
        self._parts = parts
        self._ahead = iter(parts.items())
        self._left = set(parts)
        self._ready: dict[str, tuple[Any, Exception | None]] = {}
        self._changed = threading.Condition()
        self._is_stopped = False
        self._host_budget = 0
        self._threads: list[threading.Thread] = []

    def start(self, n_threads: int) -> None:
        """Start threads; if the system allows none, read everything now."""
        self._host_budget = max(MIN_HOST_BUDGET, staging_options().host_budget // n_threads)
        _READING.add(self)
        try:
            for _ in range(n_threads):
                thread = threading.Thread(target=self._run, name="tensorkeep-prefetch", daemon=True)
                thread.start()
                self._threads.append(thread)
        except RuntimeError:
            if not self._threads:
                self._run()

    def stop(self) -> None:
        """Have each thread stop after the tensor that it is reading, and each waiting `take` fail."""
        with self._changed:
            self._is_stopped = True
            self._ahead = iter(())
            self._ready.clear()
            self._changed.notify_all()

    def join(self) -> None:
        """Wait for the threads."""
        for thread in self._threads:
            thread.join()

    def take(self, name: str) -> Any:
        """Hand out a tensor, waiting for it if need be."""
        if name not in self._parts:
            raise TensorkeepError(f"tensor {name} is not in the prefetch plan")
        with self._changed:
            while self._is_left(name) and name not in self._ready:
                self._changed.wait()
            return self._hand_out(name)

    def take_any(self) -> tuple[str, Any] | None:
        """Hand out the next tensor that is ready, with its name; None if none is left."""
        with self._changed:
            while self._left and self._is_open() and not self._ready:
                self._changed.wait()
            if not self._left:
                return None
            name = next(iter(self._ready))
            return name, self._hand_out(name)

    def _hand_out(self, name: str) -> Any:
        self._left.remove(name)
        tensor, error = self._ready.pop(name)
        if error is not None:
            raise error
        return _fenced(tensor)

    def _is_left(self, name: str) -> bool:
        if self._is_open() and name not in self._left:
            raise TensorkeepError(
                "tensor already delivered (prefetch hands each tensor out once, via take or iteration)"
            )
        return True

    def _is_open(self) -> bool:
        if self._is_stopped:
            raise TensorkeepError("prefetch loader closed")
        return True

    def _run(self) -> None:
        with staging(host_budget=self._host_budget, n_threads=1):  # of all threads together, what one load may use
            while (job := self._next()) is not None:
                name, part = job
                self._put(name, _outcome(*part))

    def _next(self) -> tuple[str, Part] | None:
        with self._changed:
            return next(self._ahead, None)

    def _put(self, name: str, outcome: tuple[Any, Exception | None]) -> None:
        with self._changed:
            if not self._is_stopped:
                self._ready[name] = outcome
                self._changed.notify_all()


def _outcome(lazy: LazyTensor, index: Any) -> tuple[Any, Exception | None]:
    """Read a part of a tensor; return it or the error, which is raised where the tensor is taken."""
    try:
        return lazy[index], None
    except Exception as error:  # noqa: BLE001 - see above
        return None, error


_READING: Final[WeakSet[_Reading]] = WeakSet()


@atexit.register
def _stop_all() -> None:
    """Leave no thread in torch's code while the process ends, which could crash it."""
    for reading in list(_READING):
        reading.stop()
        reading.join()


def _fenced(tensor: Any) -> Any:
    """Have the device keep a tensor's memory until the stream of the thread that takes it is done with it."""
    if getattr(tensor, "is_cuda", False) or getattr(tensor, "is_xpu", False):
        import torch

        module: Any = torch.cuda if tensor.is_cuda else torch.xpu
        tensor.record_stream(module.current_stream(tensor.device))
    return tensor


def _device_here(device: Any, library: Library) -> Any:
    """Return a device as an empty tensor there names it; a DeviceError if this machine does not have it.

    Threads would take `"cuda"` for the first device, whichever the caller has set.
    """
    arrays = adapter_for(library.name, device)
    return arrays.place(arrays.views(bytearray(), {"": TensorEntry("U8", (0,), (0, 0))}, 0))[""].device


def parts_of(file: TensorFile, plan: Mapping[str, Any], library: Library, device: Any) -> dict[str, Part]:
    """Return what a plan asks for, in the order of the bytes in the file."""
    planned = {name: file[name] for name in file if name in plan}
    refuse_copies(planned, file.aliases, file.stored)
    rows: dict[str, Any] = {}
    for name, lazy in planned.items():
        if getattr(lazy.entry.known_dtype, "torch", None) is None:
            raise DtypeError(f"prefetch cannot hand out dtype {lazy.dtype}: torch has no matching dtype", tensor=name)
        rows[name] = _rows_of(name, lazy.shape, plan[name])
    here = _device_here(device, library)
    readers: dict[Reader, Reader] = {}
    parts: dict[str, Part] = {}
    for name, lazy in planned.items():
        if lazy.reader not in readers:
            readers[lazy.reader] = lazy.reader.with_framework(library.name, here)
        parts[name] = LazyTensor(name, lazy.entry, readers[lazy.reader]), rows[name]
    return parts


def _rows_of(name: str, shape: tuple[int, ...], rows: Any) -> Any:
    """Return the index for what a plan asks of a tensor: None for all of it, or a slice of rows."""
    if rows is None:
        return ...
    if not isinstance(rows, slice):
        raise TensorkeepError(f"prefetch plan values must be None or a slice, got {type(rows)} for {name}")
    if not shape:
        raise TensorkeepError(f"cannot slice rows of the 0-d tensor {name}")
    for label, bound in (("start", rows.start), ("stop", rows.stop)):
        if bound is None:
            continue
        if not hasattr(bound, "__index__"):
            raise TensorkeepError(f"prefetch plan slice bounds for {name} must be integers or None")
        if not -shape[0] <= bound.__index__() <= shape[0]:
            raise TensorkeepError(
                f"prefetch plan slice {label} {bound} for {name} is out of range for {shape[0]} rows"
            )
    try:
        start, stop, step = rows.indices(shape[0])
    except (TypeError, ValueError) as error:
        raise TensorkeepError(f"invalid prefetch plan slice for {name}: {type(error).__name__}: {error}") from None
    if step != 1:
        raise TensorkeepError(f"prefetch plan slices must have step 1, got {step} for {name}")
    return slice(start, stop)

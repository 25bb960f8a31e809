"""Where the tensors of a writer wait for the commit: at their places in the new files, or in the order they come."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from contextlib import ExitStack
from threading import Lock
from typing import Any, Final, Protocol

import msgspec

from tensorkeep.arrays import TensorToWrite, plain_library
from tensorkeep.checkpoint.saving import (
    DirectoryDestination,
    ReservedFiles,
    SaveOptions,
    plan_whole,
    stage_all,
    write_all,
)
from tensorkeep.encryption import ScratchCipher, ScratchSource, ScratchWriter
from tensorkeep.errors import HeaderError, RefusedError, TensorNotFoundError
from tensorkeep.limits import MAX_NAME_LENGTH
from tensorkeep.tensors import Digesting, LazyTensor, PlaceholderTensor, Prepared, StoredTensor, prepare
from tensorkeep.texts import counted, listed
from tensorkeep.transport import ByteRange, open_source

_SPOOL: Final = "tensors.spool"

_ALIGNMENT: Final = 64
"""Bytes at whose multiples tensors begin where they wait."""


class Room(Protocol):
    """Takes tensors, from several threads; `commit` makes them the checkpoint."""

    def open(self) -> None:
        """Take the lock of the checkpoint."""

    def check(self, name: str, tensor: TensorToWrite) -> None:
        """Refuse a tensor that has no place."""

    def fill(self, name: str, given: Any, tensor: TensorToWrite, digesting: Digesting) -> None:
        """Write a tensor; what is given again after a failure takes its place."""

    def missing(self, written: Collection[str]) -> list[str]:
        """Return names that are known and not written."""

    def commit(self, digests: Mapping[str, bytes]) -> None:
        """Replace the checkpoint, if nothing is missing."""

    def close(self) -> None:
        """Remove what is not committed, and release the lock."""


class PlannedRoom:
    """A room for tensors whose dtypes and shapes are known: the new files, at their final size."""

    def __init__(self, directory: str, prepared: Prepared, options: SaveOptions) -> None:
        self._directory = directory
        self._plan = prepared.to_write
        self._is_durable = options.durable
        self._destination = DirectoryDestination(directory, plan_whole(prepared, options), options)
        self._open = ExitStack()

    def open(self) -> None:
        """Make the files."""
        self._open.callback(self._destination.abandon)
        self._destination.open()
        reservation = self._destination.reserve()
        self._places = reservation.places
        files = ReservedFiles(reservation.files, self._destination.refresh, durable=self._is_durable)
        self._files = self._open.enter_context(files)

    def check(self, name: str, tensor: TensorToWrite) -> None:
        """Compare a tensor with the plan."""
        _refuse_unplanned(name, tensor, self._plan, self._directory)

    def fill(self, name: str, given: Any, tensor: TensorToWrite, digesting: Digesting) -> None:  # noqa: ARG002
        """Write a tensor to its place."""
        self._files.fill(self._places[name], tensor.nbytes, tensor.buffers(), digesting)

    def missing(self, written: Collection[str]) -> list[str]:
        """Compare with the plan."""
        return [name for name in self._plan if name not in written]

    def commit(self, digests: Mapping[str, bytes]) -> None:
        """Complete the headers."""
        _refuse_missing(self.missing(digests), self._directory)
        self._files.sync()
        self._destination.collect(digests)
        self._destination.commit()

    def close(self) -> None:
        """Close the files."""
        self._open.close()


class GrowingRoom:
    """A room for tensors as they come: one file beside the new ones, from which they are copied at the end.

    If the checkpoint is encrypted, planned tensors wait there too, encrypted with a key that only this process has.
    """

    def __init__(self, directory: str, options: SaveOptions, planned: Prepared | None = None) -> None:
        self._directory = directory
        self._options = options
        self._planned = planned
        self._cipher = None if options.encryption is None else ScratchCipher()
        self._destination = DirectoryDestination(directory, plan_whole(prepare({}), options), options)
        self._open = ExitStack()
        self._lock = Lock()
        self._nbytes = 0
        self._tensors: dict[str, PlaceholderTensor] = {}
        self._starts: dict[str, int] = {}

    def open(self) -> None:
        """Make the file in which tensors wait."""
        self._open.callback(self._destination.abandon)
        self._destination.open()
        file, self._path = self._destination.scratch(_SPOOL)
        self._open.callback(file.close)
        self._spool = file if self._cipher is None else ScratchWriter(file, self._cipher)

    def check(self, name: str, tensor: TensorToWrite) -> None:
        """Compare a tensor with the plan; without one, refuse a name that no file can have."""
        if self._planned is not None:
            _refuse_unplanned(name, tensor, self._planned.to_write, self._directory)
            return
        placeholder = PlaceholderTensor(tensor.dtype, tensor.shape, "numpy")
        refuse_names([name], prepare({name: placeholder}), self._directory)

    def fill(self, name: str, given: Any, tensor: TensorToWrite, digesting: Digesting) -> None:
        """Write a tensor after the others."""
        library = given.library if isinstance(given, LazyTensor) else plain_library(given)
        with self._lock:
            start = self._starts[name] = self._nbytes
            self._nbytes += -(-tensor.nbytes // _ALIGNMENT) * _ALIGNMENT
            self._tensors[name] = PlaceholderTensor(tensor.dtype, tensor.shape, library or "numpy")
        write_all(self._spool, start, tensor.nbytes, tensor.buffers(), digesting, self._destination.refresh)

    def missing(self, written: Collection[str]) -> list[str]:
        """Compare with the plan, if there is one."""
        planned = () if self._planned is None else self._planned.to_write
        return [name for name in planned if name not in written]

    def commit(self, digests: Mapping[str, bytes]) -> None:
        """Lay the files out as `save_checkpoint` does, and copy the tensors into them."""
        _refuse_missing(self.missing(digests), self._directory)
        written = {name: tensor for name, tensor in self._tensors.items() if name in digests}
        prepared = prepare(written) if self._planned is None else self._planned
        file = open_source(self._path, backend="pread")
        self._open.callback(file.close)
        source = file if self._cipher is None else ScratchSource(file, self._cipher)
        stored: dict[str, TensorToWrite] = {
            name: StoredTensor(
                tensor.dtype,
                tensor.shape,
                tensor.nbytes,
                source,
                ByteRange(self._starts[name], self._starts[name] + tensor.nbytes),
                digests[name],
            )
            for name, tensor in prepared.to_write.items()
        }
        plan = plan_whole(msgspec.structs.replace(prepared, to_write=stored), self._options)
        destination = self._destination.with_plan(plan)
        stage_all(destination, plan, self._options)
        destination.commit()

    def close(self) -> None:
        """Remove the file."""
        self._open.close()


def _refuse_unplanned(name: str, tensor: TensorToWrite, plan: Mapping[str, TensorToWrite], directory: str) -> None:
    planned = plan.get(name)
    if planned is None:
        raise TensorNotFoundError(f"the plan has no tensor `{name}`", path=directory, tensor=name)
    if (tensor.dtype, tensor.shape) != (planned.dtype, planned.shape):
        raise RefusedError(
            f"tensor `{name}` is not as planned",
            path=directory,
            tensor=name,
            expected=f"{planned.dtype.name} {list(planned.shape)}",
            found=f"{tensor.dtype.name} {list(tensor.shape)}",
        )


def _refuse_missing(missing: Collection[str], directory: str) -> None:
    if missing:
        raise RefusedError(
            f"{counted(len(missing), 'tensor')} of the plan {'was' if len(missing) == 1 else 'were'} not written",
            path=directory,
            expected=listed(f"`{name}`" for name in missing),
            hint="Nothing was saved",
        )


def refuse_names(names: Iterable[Any], prepared: Prepared, directory: str) -> None:
    """Refuse names that a file cannot have; they got others when they were prepared."""
    for name in names:
        if name not in prepared.to_write or type(name) is not str:
            raise HeaderError(
                "this cannot be the name of a tensor",
                path=directory,
                expected=f"text of at most {MAX_NAME_LENGTH:,} characters that has a UTF-8 form and is not reserved",
                found=ascii(name),
            )

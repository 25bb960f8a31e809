"""A save whose tensors come one by one, in any order."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from operator import index
from threading import Lock
from typing import Any, Self

from tensorkeep.arrays import any_tensor_to_write
from tensorkeep.checkpoint.saving import SaveOptions, refuse_file_name
from tensorkeep.checkpoint.streaming._rooms import GrowingRoom, PlannedRoom, Room, refuse_names
from tensorkeep.dtypes import find_dtype
from tensorkeep.encryption import Encryption, KeyLike
from tensorkeep.errors import DtypeError, RefusedError, UnsupportedError
from tensorkeep.formats.safetensors import ALIGNMENT_NBYTES
from tensorkeep.layout import parse_size
from tensorkeep.tensors import (
    Digesting,
    LazyTensor,
    LazyTensors,
    PlaceholderTensor,
    check_target,
    prepare,
    refuse_other_bytes,
)
from tensorkeep.texts import counted, listed
from tensorkeep.transport import is_remote


class CheckpointWriter:
    """A checkpoint that is being written; `writing` makes one.

    A context manager, for one block: at its end, the complete checkpoint is in place. If a planned tensor is missing
    or the block raises, nothing has changed. Several threads may write different tensors; they must end before the
    block.
    """

    def __init__(self, directory: str, room: Room) -> None:
        self._directory = directory
        self._room = room
        self._digests: dict[str, bytes | None] = {}
        self._lock = Lock()
        self._process: int | None = None
        self._is_open = False

    def __enter__(self) -> Self:
        if self._process is not None:
            raise UnsupportedError(
                "a writer is for one block", path=self._directory, hint="Call tensorkeep.writing again"
            )
        self._process = os.getpid()
        with ExitStack() as failing:
            failing.callback(self._room.close)
            self._room.open()
            failing.pop_all()
        self._is_open = True
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if os.getpid() != self._process:  # the block of a child process, which wrote nothing of its own
            return
        with self._lock:  # from now on, no thread begins to write
            self._is_open = False
        try:
            if kind is None:
                self._room.commit(self._finished())
        finally:
            self._room.close()

    def _finished(self) -> dict[str, bytes]:
        with self._lock:
            digests = {name: digest for name, digest in self._digests.items() if digest is not None}
            unfinished = [name for name in self._digests if name not in digests]
        if unfinished:
            raise RefusedError(
                f"threads are still writing {counted(len(unfinished), 'tensor')}",
                path=self._directory,
                found=listed(f"`{name}`" for name in unfinished),
                hint="Nothing was saved; end all threads that write before the block",
            )
        return digests

    def __setitem__(self, name: str, tensor: Any) -> None:
        """Write a tensor.

        Args:
            name: A name of the plan; any new name if there is no plan.
            tensor: A NumPy array, a tensor of torch or another library on any device, or a lazy tensor; of the dtype
                and shape that were planned.

        Raises:
            TensorNotFoundError: If the plan has no such name (also a KeyError).
            RefusedError: If the tensor is not as planned, or was written before.
            HeaderError: If it cannot be the name of a tensor.
            UnsupportedError: If it is not a tensor, or the writer is not open.
            IntegrityError: If it is a lazy tensor whose bytes do not have the digest that they should have.
            TransportError: If the disk is full, or a system call fails otherwise.
        """
        self._require_open(name)
        described = tensor.tensor_to_write() if isinstance(tensor, LazyTensor) else any_tensor_to_write(tensor, name)
        self._room.check(name, described)
        with self._lock:
            self._require_open(name)
            if name in self._digests:
                raise RefusedError(f"tensor `{name}` was written before", path=self._directory, tensor=name)
            self._digests[name] = None
        try:
            with Digesting() as digesting:
                self._room.fill(name, tensor, described, digesting)
                (digest,) = digesting.digests()
            refuse_other_bytes([(name, described)], [digest])
        except BaseException:
            with self._lock:
                del self._digests[name]  # it may be written again
            raise
        with self._lock:
            self._digests[name] = digest

    def _require_open(self, name: str) -> None:
        if not self._is_open:
            raise UnsupportedError("tensors are written in the block of `with`", path=self._directory, tensor=name)

    @property
    def missing(self) -> list[str]:
        """Names of the plan that are not written yet, in its order."""
        return self._room.missing(self._digests)


def writing(
    directory: str | os.PathLike[str],
    plan: Mapping[str, Any] | None = None,
    *,
    max_shard_size: int | str = "5GB",
    base_name: str = "model",
    variant: str | None = None,
    metadata: Mapping[str, str] | None = None,
    sha256: bool = False,
    durable: bool = True,
    align: int = ALIGNMENT_NBYTES,
    order: Sequence[str] | None = None,
    encrypt: KeyLike | Encryption | None = None,
) -> CheckpointWriter:
    """Write a checkpoint tensor by tensor, in any order, without ever holding all of them.

        plan = {"embedding": ("bf16", (50257, 768)), "head": ("bf16", (768, 50257))}
        with tensorkeep.writing("checkpoint", plan) as writer:
            for name in plan:
                writer[name] = compute(name)

    The checkpoint appears whole at the end of the block, with digests; until then, and if the block raises, the
    directory holds what it held before. Of NumPy arrays, the files equal what `save_checkpoint` writes,
    byte for byte.

    Without a plan, tensors are taken as they come, whatever their names, dtypes and shapes. They wait in a file, from
    which the kernel copies them to their places at the end: the disk needs room for them twice.

    Args:
        directory: Created if its parent exists.
        plan: Name to dtype and shape: a pair, such as `("bf16", (10, 4))`, or anything that has both, such as a lazy
            tensor, an array, or a tensor on torch's meta device. An open checkpoint
            also serves as a plan: its nested state and other data are kept; tied tensors are written one by one. None
            if that is not known before.
        max_shard_size: Bytes of tensors in one shard: a number, or text such as `"5GB"`.
        base_name: What file names begin with.
        variant: Such as `"fp16"`, which gives `model.fp16.safetensors`.
        metadata: Free text by key, for each shard. None keeps the metadata of an open checkpoint.
        sha256: Whether the index gets the SHA-256 of each shard.
        durable: Whether to wait until everything is on the disk (fsync).
        align: Bytes at whose multiples tensors begin in a file; see `tensorkeep.save`.
        order: Names or shell patterns whose tensors come first in each file, in this order; see `tensorkeep.save`.
        encrypt: The key to encrypt with, the path of a file with it, or an `Encryption`. Tensors then wait in a file
            that is encrypted with a key of its own, also those of a plan.

    Returns:
        A context manager. Inside the block, assign each tensor by name.

    Raises:
        DtypeError: If the format has no such dtype.
        TypeError: If `directory` is not path-like, metadata is not text, or a plan is neither pairs nor tensors.
        UnsupportedError: If the directory is a URL, or a size or name is invalid.
        HeaderError: If a name is not text that has a UTF-8 form, is too long, or is reserved by the format.
        LimitError: If a file would be larger than any file system allows.
        ValueError: If an extent is negative.
        MissingDependencyError: If `cryptography` is not installed, with `encrypt`.
    """
    refuse_file_name(check_target(directory))
    target = os.fspath(directory)
    if is_remote(target):
        raise UnsupportedError(
            "tensors are written one by one to a directory of this machine",
            path=target,
            expected="a local directory",
            hint="Save a view of computed tensors (tensorkeep.combine) there, or write here and upload the files",
        )
    options = SaveOptions(
        max_shard_nbytes=parse_size(max_shard_size),
        base_name=base_name,
        variant=variant,
        metadata=metadata,
        sha256=sha256,
        durable=durable,
        align=align,
        order=order,
        encryption=Encryption.of(encrypt),
    )
    if plan is None:
        return CheckpointWriter(target, GrowingRoom(target, options))
    if isinstance(plan, LazyTensors):
        prepared = prepare(plan, ties="copy")
    else:
        prepared = prepare({name: _placeholder(name, each) for name, each in plan.items()})
    refuse_names(plan, prepared, target)
    if options.encryption is not None:
        return CheckpointWriter(target, GrowingRoom(target, options, prepared))
    return CheckpointWriter(target, PlannedRoom(target, prepared, options))


def _placeholder(name: Any, planned: Any) -> PlaceholderTensor:
    dtype, shape = _described(name, planned)
    extents = tuple(map(index, shape))
    if any(extent < 0 for extent in extents):
        raise ValueError(f"a shape cannot have negative extents: {list(extents)}, of tensor {name!r}")
    try:
        return PlaceholderTensor(find_dtype(dtype), extents, "numpy")
    except DtypeError as error:
        raise error.with_fields(message=f"tensor {name!r} is planned with a dtype that does not exist") from None


def _described(name: Any, planned: Any) -> tuple[Any, Iterable[Any]]:
    match planned:
        case (dtype, [*shape]):
            return dtype, shape
        case _ if hasattr(planned, "dtype") and hasattr(planned, "shape"):
            return planned.dtype, planned.shape
    raise TypeError(f'tensor {name!r} is planned as a pair, such as ("bf16", (10, 4)), or as a tensor: {planned!r}')

"""A storage reader for torch.distributed.checkpoint: each rank gets its own part of any checkpoint."""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, TypeAlias

import torch
from torch.distributed.checkpoint.metadata import (
    STORAGE_TYPES,
    BytesStorageMetadata,
    ChunkStorageMetadata,
    Metadata,
    TensorProperties,
    TensorStorageMetadata,
)
from torch.distributed.checkpoint.planner import LoadItemType, LoadPlan, LoadPlanner, ReadItem
from torch.distributed.checkpoint.storage import StorageReader
from torch.futures import Future

from tensorkeep.checkpoint import open_checkpoint
from tensorkeep.dtypes import BY_NAME
from tensorkeep.encryption import KeyLike
from tensorkeep.errors import UnsupportedError
from tensorkeep.kinds import LoadOptions, Opened
from tensorkeep.models import PartJob, check_castable, fill_parts
from tensorkeep.tensors import LazyTensor, Region
from tensorkeep.transport import Backend

_Path: TypeAlias = tuple[str | int, ...]
"""The keys that lead to a value: text for keys of dicts, numbers for indices of lists."""

_VALUE: Final = object()
"""Placeholder for a value that is not a tensor to torch.distributed.checkpoint, such as a NumPy array."""


class TensorkeepReader(StorageReader):
    """Loads a checkpoint into what each rank has, however it was saved: `dcp.load(..., storage_reader=...)`.

    It reads any checkpoint that `tensorkeep.open` opens: saved by any number of ranks or by one process, from other
    libraries, pickles (nothing in them is run), local or remote. Each rank reads little more than it needs.

    Args:
        path: A directory, an index, a file, or the URL of one.
        variant: Such as `"fp16"`, where a directory has `model.fp16.safetensors` or its shards.
        backend: How local files are read: `"mmap"`, `"pread"`, or `"auto"`.
        check: Whether to check headers against the digests that were saved.
        key: The key of an encrypted checkpoint; see `tensorkeep.open`.

    Raises:
        TypeError: If `path` is not path-like.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        variant: str | None = None,
        backend: Backend = "auto",
        check: bool = True,
        key: KeyLike | Sequence[KeyLike] | None = None,
    ) -> None:
        self._path = os.fsdecode(path)
        self._options: dict[str, Any] = {"variant": variant, "backend": backend, "check": check, "key": key}
        self._opened: Opened | None = None
        self._tensors: dict[str, LazyTensor] = {}
        self._paths: dict[str, _Path] = {}

    @property
    def checkpoint_id(self) -> str:
        """The path."""
        return self._path

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike[str]) -> bool:
        """Return whether a value can be a path.

        Args:
            checkpoint_id: Any value.

        Returns:
            Whether it is path-like.
        """
        with suppress(TypeError):
            os.fsdecode(checkpoint_id)
            return True
        return False

    def reset(self, checkpoint_id: str | os.PathLike[str] | None = None) -> None:
        """Start over, at another path if one is given.

        Args:
            checkpoint_id: The path; None keeps the one that the reader has.
        """
        self._close()
        if checkpoint_id is not None:
            self._path = os.fsdecode(checkpoint_id)

    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:  # noqa: ARG002
        """Open the checkpoint and describe what it holds; called on all ranks.

        Args:
            *args: Ignored.
            **kwargs: Ignored.

        Returns:
            Names, dtypes and shapes.

        Raises:
            UnsupportedError: If the checkpoint is not a dict, or two values have the same name in DCP.
            TensorkeepError: If `tensorkeep.open` cannot open it.
        """
        self._close()
        self._opened = opened = open_checkpoint(self._path, framework="torch", **self._options)
        opened.require_names()
        entries: dict[str, STORAGE_TYPES] = {}
        for path, value in _leaves(opened):
            name = ".".join(map(str, path))
            if name in self._paths:
                raise UnsupportedError(
                    f"two values have the name {name!r} in torch.distributed.checkpoint",
                    path=self._path,
                    hint="Load it with tensorkeep.load",
                )
            self._paths[name] = path
            if not isinstance(value, LazyTensor):
                entries[name] = BytesStorageMetadata()
            elif _torch_dtype(value) is not None:
                self._tensors[name] = value
                entries[name] = _described(value)
        return Metadata(entries, planner_data=dict(self._paths))

    def set_up_storage_reader(self, metadata: Metadata, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        """Begin a load; called on all ranks.

        Args:
            metadata: The result of `read_metadata`.
            is_coordinator: Ignored.
            *args: Ignored.
            **kwargs: Ignored.
        """

    def prepare_local_plan(self, plan: LoadPlan) -> LoadPlan:
        """Return the plan of this rank unchanged.

        Args:
            plan: The plan.
        """
        return plan

    def prepare_global_plan(self, plans: list[LoadPlan]) -> list[LoadPlan]:
        """Return the plans of all ranks unchanged.

        Args:
            plans: The plan of each rank.
        """
        return plans

    def read_data(self, plan: LoadPlan, planner: LoadPlanner) -> Future[None]:
        """Read what this rank needs; called on all ranks.

        Args:
            plan: The plan of this rank.
            planner: Gives the tensors to fill, and takes the values that are not tensors.

        Returns:
            A completed future.

        Raises:
            DtypeError: If the saved dtype cannot be converted to the tensor's, such as complex to real.
            TransportError: If the bytes cannot be read.
        """
        values = [item for item in plan.items if item.type == LoadItemType.BYTE_IO]
        self._give_values(values, planner)
        wanted = [item for item in plan.items if item.type != LoadItemType.BYTE_IO]
        targets = [planner.resolve_tensor(item).detach() for item in wanted]
        fill_parts(map(self._job, wanted, targets), lambda _: None)
        for item, target in zip(wanted, targets, strict=True):
            planner.commit_tensor(item, target)
        self._close()
        future: Future[None] = Future()
        future.set_result(None)
        return future

    def _job(self, item: ReadItem, target: torch.Tensor) -> PartJob:
        lazy = self._tensors[item.storage_index.fqn]
        check_castable(lazy, target, item.storage_index.fqn)
        starts, sizes = tuple(item.storage_offsets), tuple(item.lengths)
        if BY_NAME[lazy.dtype].is_packed:
            starts, sizes = _doubled(starts), _doubled(sizes)
        stops = tuple(start + size for start, size in zip(starts, sizes, strict=True))
        return PartJob(lazy, Region(starts, stops), target)

    def _give_values(self, items: Iterable[ReadItem], planner: LoadPlanner) -> None:
        """Hand over values that are not tensors as planners expect them: as a stream of `torch.save`."""
        items = list(items)
        if not items or self._opened is None:
            return
        tree = _load_tree(self._opened, [item.storage_index.fqn for item in items])
        for item in items:
            stream = io.BytesIO()
            torch.save(_value_at(tree, self._paths[item.storage_index.fqn]), stream)
            stream.seek(0)
            planner.load_bytes(item, stream)

    def _close(self) -> None:
        opened, self._opened = self._opened, None
        self._tensors, self._paths = {}, {}
        if opened is not None:
            opened.close()


def _leaves(opened: Opened) -> Iterable[tuple[_Path, Any]]:
    """Give the values of the checkpoint with their paths; without a tree, a name is one key."""
    if not opened.has_tree:
        return (((name,), lazy) for name, lazy in opened.items())
    tree = opened.tree
    if not isinstance(tree, Mapping):
        raise UnsupportedError("torch.distributed.checkpoint loads only dicts", found=type(tree).__name__)
    leaves = _leaves_of(tree, lambda value: isinstance(value, LazyTensor))
    has_torch = any(isinstance(value, LazyTensor) and value.library == "torch" for _, value in leaves)

    def is_tensor(value: Any) -> bool:
        return isinstance(value, LazyTensor) and not (has_torch and value.library == "numpy")

    return ((path, value if is_tensor(value) else _VALUE) for path, value in _leaves_of(tree, is_tensor))


def _load_tree(opened: Opened, names: list[str]) -> Any:
    """Load the values of some names, and only these where the tree allows it."""
    if not opened.loads_parts:
        return opened.load_tree()
    return opened.load_state(LoadOptions(only=set(names).__contains__))


def _described(lazy: LazyTensor) -> TensorStorageMetadata:
    size = torch.Size(_halved(lazy))
    chunk = ChunkStorageMetadata(torch.Size([0] * len(size)), size)
    return TensorStorageMetadata(TensorProperties(dtype=_torch_dtype(lazy) or torch.uint8), size, [chunk])


def _torch_dtype(lazy: LazyTensor) -> torch.dtype | None:
    """Return torch's dtype for a tensor, or None if torch lacks it."""
    row = BY_NAME.get(lazy.dtype)
    found = getattr(torch, row.torch, None) if row is not None and row.torch else None
    return found if isinstance(found, torch.dtype) else None


def _halved(lazy: LazyTensor) -> tuple[int, ...]:
    if not BY_NAME[lazy.dtype].is_packed:
        return lazy.shape
    return (*lazy.shape[:-1], lazy.shape[-1] // 2)


def _doubled(shape: tuple[int, ...]) -> tuple[int, ...]:
    return (*shape[:-1], 2 * shape[-1])


def _leaves_of(tree: Mapping[Any, Any], is_tensor: Callable[[Any], bool]) -> Iterator[tuple[_Path, Any]]:
    """Yield the values that DCP names: all except dicts, and lists that hold a dict or a tensor."""
    waiting: list[Iterator[tuple[_Path, Any]]] = [_children((), tree)]
    while waiting:
        for path, value in waiting[-1]:
            if _is_container(value, is_tensor):
                waiting.append(_children(path, value))
                break
            yield path, value
        else:
            waiting.pop()


def _children(path: _Path, value: Any) -> Iterator[tuple[_Path, Any]]:
    if isinstance(value, Mapping):
        return (((*path, str(key)), inner) for key, inner in value.items())
    return (((*path, place), inner) for place, inner in enumerate(value))


def _is_container(value: Any, is_tensor: Callable[[Any], bool]) -> bool:
    if isinstance(value, Mapping):
        return True
    return isinstance(value, list) and any(is_tensor(inner) or _is_container(inner, is_tensor) for inner in value)


def _value_at(tree: Any, path: _Path) -> Any:
    """Return the value at a path; DCP gives keys that are not text as text."""
    for key in path:
        if isinstance(key, int) or key in tree:
            tree = tree[key]
        else:
            tree = next(value for other, value in tree.items() if str(other) == key)
    return tree

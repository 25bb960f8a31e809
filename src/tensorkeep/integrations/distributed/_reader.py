"""A storage reader of torch.distributed.checkpoint, which gives each rank its own part of any checkpoint."""

from __future__ import annotations

import io
import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any, Final

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
from tensorkeep.errors import UnsupportedError
from tensorkeep.integrations.distributed._leaves import Path, leaves_of, value_at
from tensorkeep.kinds import LoadOptions, Opened
from tensorkeep.models import PartJob, check_castable, fill_parts
from tensorkeep.tensors import LazyTensor, Region
from tensorkeep.transport import Backend

_VALUE: Final = object()
"""Stands for what is no tensor to torch.distributed.checkpoint, an array of NumPy among them."""


class TensorkeepReader(StorageReader):
    """Loads a checkpoint into what each rank has, however it was saved: `dcp.load(..., storage_reader=...)`.

    Any checkpoint that `tensorkeep.open` opens will do: of any number of ranks or of one process, of other libraries,
    a file of pickles (of which nothing is run), on a disk or remote. Each rank reads what it needs and hardly more.

    Args:
        path: A directory, an index, a file, or the URL of one.
        variant: Such as `"fp16"`, where a directory has `model.fp16.safetensors` or its shards.
        backend: How local files are read: `"mmap"`, `"pread"`, or `"auto"`.
        check: Whether to hold headers against the digests that were saved.

    Raises:
        TypeError: If the path is none.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        variant: str | None = None,
        backend: Backend = "auto",
        check: bool = True,
    ) -> None:
        self._path = os.fsdecode(path)
        self._options: dict[str, Any] = {"variant": variant, "backend": backend, "check": check}
        self._opened: Opened | None = None
        self._tensors: dict[str, LazyTensor] = {}
        self._paths: dict[str, Path] = {}

    @property
    def checkpoint_id(self) -> str:
        """The path."""
        return self._path

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike[str]) -> bool:
        """Say whether something is a path.

        Args:
            checkpoint_id: Anything.
        """
        with suppress(TypeError):
            os.fsdecode(checkpoint_id)
            return True
        return False

    def reset(self, checkpoint_id: str | os.PathLike[str] | None = None) -> None:
        """Begin anew, at another path if one is given.

        Args:
            checkpoint_id: The path; None for the one that the reader has.
        """
        self._close()
        if checkpoint_id is not None:
            self._path = os.fsdecode(checkpoint_id)

    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:  # noqa: ARG002
        """Open the checkpoint, and say what it holds; called on all ranks.

        Args:
            *args: Of no effect.
            **kwargs: Of no effect.

        Returns:
            Names, dtypes and shapes.

        Raises:
            UnsupportedError: If it is no dict, or two values have one name there.
            TensorkeepError: As `tensorkeep.open` raises it.
        """
        self._close()
        self._opened = opened = open_checkpoint(self._path, framework="torch", **self._options)
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
            metadata: As `read_metadata` gave it.
            is_coordinator: Of no effect.
            *args: Of no effect.
            **kwargs: Of no effect.
        """

    def prepare_local_plan(self, plan: LoadPlan) -> LoadPlan:
        """Take the plan of this rank as it is.

        Args:
            plan: The plan.
        """
        return plan

    def prepare_global_plan(self, plans: list[LoadPlan]) -> list[LoadPlan]:
        """Take the plans of all ranks as they are.

        Args:
            plans: Of each rank.
        """
        return plans

    def read_data(self, plan: LoadPlan, planner: LoadPlanner) -> Future[None]:
        """Read what this rank wants; called on all ranks.

        Args:
            plan: Of this rank.
            planner: Gives the tensors that are filled, and takes the values that are no tensors.

        Returns:
            A future that is done.

        Raises:
            DtypeError: If numbers cannot become those of the tensor, such as complex ones that are to be real.
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
        """Hand over values that are no tensors, as planners take them: as what `torch.save` makes of data."""
        items = list(items)
        if not items or self._opened is None:
            return
        tree = _load_tree(self._opened, [item.storage_index.fqn for item in items])
        for item in items:
            stream = io.BytesIO()
            torch.save(value_at(tree, self._paths[item.storage_index.fqn]), stream)
            stream.seek(0)
            planner.load_bytes(item, stream)

    def _close(self) -> None:
        opened, self._opened = self._opened, None
        self._tensors, self._paths = {}, {}
        if opened is not None:
            opened.close()


def _leaves(opened: Opened) -> Iterable[tuple[Path, Any]]:
    """Give what the checkpoint holds, by the keys that lead to it; a name is one key where nothing else is said."""
    if not opened.has_tree:
        return (((name,), lazy) for name, lazy in opened.items())
    tree = opened.tree
    if not isinstance(tree, Mapping):
        raise UnsupportedError("torch.distributed.checkpoint loads dicts only", found=type(tree).__name__)
    leaves = leaves_of(tree, lambda value: isinstance(value, LazyTensor))
    has_torch = any(isinstance(value, LazyTensor) and value.library == "torch" for _, value in leaves)

    def is_tensor(value: Any) -> bool:
        return isinstance(value, LazyTensor) and not (has_torch and value.library == "numpy")

    return ((path, value if is_tensor(value) else _VALUE) for path, value in leaves_of(tree, is_tensor))


def _load_tree(opened: Opened, names: list[str]) -> Any:
    """Load the values of some names, and of a state no more than these."""
    if not opened.loads_parts:
        return opened.load_tree()
    return opened.load_state(LoadOptions(only=set(names).__contains__))


def _described(lazy: LazyTensor) -> TensorStorageMetadata:
    size = torch.Size(_halved(lazy))
    chunk = ChunkStorageMetadata(torch.Size([0] * len(size)), size)
    return TensorStorageMetadata(TensorProperties(dtype=_torch_dtype(lazy) or torch.uint8), size, [chunk])


def _torch_dtype(lazy: LazyTensor) -> torch.dtype | None:
    """Return torch's dtype for a tensor, None where it has none."""
    row = BY_NAME.get(lazy.dtype)
    found = getattr(torch, row.torch, None) if row is not None and row.torch else None
    return found if isinstance(found, torch.dtype) else None


def _halved(lazy: LazyTensor) -> tuple[int, ...]:
    if not BY_NAME[lazy.dtype].is_packed:
        return lazy.shape
    return (*lazy.shape[:-1], lazy.shape[-1] // 2)


def _doubled(shape: tuple[int, ...]) -> tuple[int, ...]:
    return (*shape[:-1], 2 * shape[-1])

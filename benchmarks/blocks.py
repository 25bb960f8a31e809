"""Digests of blocks: what they add to a save, and what slices that are checked cost."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

import tensorkeep
from benchmarks.case import AtLeast, Case, Contender, Place

__all__ = ["CASES"]


class _Job:
    """Tensors in memory, and a checkpoint of them with digests of blocks."""

    def __init__(self, directory: Path, n_tensors: int, n_rows: int) -> None:
        self.directory = directory
        self.tensors = {
            f"w{number}": np.random.default_rng(number).random((n_rows, 1024), np.float32)
            for number in range(n_tensors)
        }

    def save(self, **options: Any) -> None:
        tensorkeep.save_checkpoint(self.tensors, self.directory, max_shard_size="250MB", **options)


def _prepare(place: Place) -> _Job:
    return _Job(place.folder / "with-blocks", 8, place.size(16_384, 64))


def _prepare_saved(place: Place) -> _Job:
    job = _prepare(place)
    job.save(block_digests=True)
    return job


def _saving(name: str, **options: Any) -> Contender:
    return Contender(name, lambda job: job.save(**options))


def _rows(name: str, n_rows: int, **options: Any) -> Contender:
    def read(job: _Job) -> object:
        with tensorkeep.open(job.directory, **options) as opened:
            return opened["w3"][10 : 10 + n_rows]

    return Contender(name, read)


def _slices(name: str, title: str, n_rows: int) -> Case:
    return Case(
        name=name,
        title=title,
        prepare=_prepare_saved,
        ours=_rows("tensorkeep, verify=True", n_rows, verify=True),
        peers=(
            _rows("tensorkeep, unchecked", n_rows),
            _rows('tensorkeep, unchecked, backend="pread"', n_rows, backend="pread"),
        ),
        has_memory=False,
    )


CASES = (
    Case(
        name="blocks/save",
        title="`save_checkpoint(block_digests=True, durable=False)`, 537 MB in 3 shards",
        prepare=_prepare,
        ours=_saving("with digests of blocks", durable=False, block_digests=True),
        peers=(_saving("without", durable=False),),
        target=AtLeast(0.71),
        has_memory=False,
        remark="Every byte is hashed twice, for its tensor and for its block, by two threads while it is written.",
    ),
    Case(
        name="blocks/durable",
        title="the same with fsync",
        prepare=_prepare,
        ours=_saving("with digests of blocks", block_digests=True),
        peers=(_saving("without"),),
        target=AtLeast(0.91),
        has_memory=False,
    ),
    _slices("blocks/row", "open it and read 10 of 16,384 rows, 41 kB, each block checked", 10),
    _slices("blocks/rows", "the same with 4,096 rows, 17 MB", 4096),
)

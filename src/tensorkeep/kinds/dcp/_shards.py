"""The state in safetensors files that ranks wrote separately, each with its own pieces of tensors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn

from tensorkeep.errors import IntegrityError
from tensorkeep.formats.safetensors import Header
from tensorkeep.kinds.dcp._files import offsets_in
from tensorkeep.kinds.dcp._metadata import Chunk, ChunkedTensor, Item, SavedState
from tensorkeep.tensors import Region


def state_of_shards(headers: Mapping[str, Header]) -> SavedState:
    """Return what was saved, from the headers of all files. No file records a tensor's shape: its pieces imply it."""
    dtypes: dict[str, str] = {}
    chunks: dict[str, list[Chunk]] = {}
    for file, header in headers.items():
        offsets = offsets_in(header)
        for name, entry in header.entries.items():
            starts = offsets.get(name, (0,) * len(entry.shape))
            if len(starts) != len(entry.shape):
                _refuse(name, file, f"{len(starts)} offsets", f"{len(entry.shape)} dimensions")
            if dtypes.setdefault(name, entry.dtype) != entry.dtype:
                _refuse(name, file, entry.dtype, dtypes[name])
            region = Region(starts, tuple(map(sum, zip(starts, entry.shape, strict=True))))
            chunks.setdefault(name, []).append(Chunk(region, Item(file, 0, 0)))
            if len(chunks[name][0].region.starts) != len(starts):
                _refuse(name, file, f"{len(starts)} dimensions", "other dimensions")
    return SavedState({name: _tensor(dtypes[name], found) for name, found in chunks.items()}, {}, {})


def _tensor(dtype: str, chunks: list[Chunk]) -> ChunkedTensor:
    reach: Any = map(max, zip(*(chunk.region.stops for chunk in chunks), strict=True))
    return ChunkedTensor(dtype, tuple(reach), tuple(chunks))


def _refuse(name: str, file: str, found: str, expected: str) -> NoReturn:
    raise IntegrityError(
        f"the pieces of tensor `{name}` do not fit together",
        path=file,
        tensor=name,
        expected=expected,
        found=found,
        hint="Are there files of two saves in the directory? Move the others away",
    )

"""Zarr 2 and 3: arrays in chunks, each under a key of its own. Pure.

- `_array`: what `.zarray` or `zarr.json` says: dtype, shape and chunks.
- `_coding`: how chunks are stored: keys, bytes, compression, shards.
- `_shard`: the index of a shard, which holds several chunks.
- `_chunks`: the chunks of an array in a store.
"""

from tensorkeep.formats.zarr._array import ARRAY_KEYS, ArrayLayout, parse_zarr
from tensorkeep.formats.zarr._chunks import ZarrChunks, ZarrStore
from tensorkeep.formats.zarr._coding import Coding

__all__ = [
    "ARRAY_KEYS",
    "ArrayLayout",
    "Coding",
    "ZarrChunks",
    "ZarrStore",
    "parse_zarr",
]

"""Datasets in chunks: where the chunks are, and how they come back out of their filters.

- `_lzf`, `_scaleoffset`: one filter each.
- `_filters`: all filters.
- `_arrays`: the indexes that are arrays.
- `_index`: the index of any kind.
- `_chunks`: `Hdf5Chunks`, the chunks of one dataset.
"""

from tensorkeep.formats.hdf5.chunks._chunks import ChunkedDataset, Hdf5Chunks
from tensorkeep.formats.hdf5.chunks._filters import Filter, parse_filters, unknown_filters

__all__ = ["ChunkedDataset", "Filter", "Hdf5Chunks", "parse_filters", "unknown_filters"]

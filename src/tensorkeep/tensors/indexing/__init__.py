"""Which bytes an index needs. Pure.

- `_selection`: a NumPy index as positions to read along each axis, and an index to apply to what was read. Pure.
- `_regions`: rectangular parts of a tensor, and whether several cover it. Pure.
- `_rows`: where a region's bytes are in its tensor. Pure.
- `_placements`: which part of a tensor a rank has. Pure.
- `_boxes`: a selection cut into reads of a good size. Pure.
- `_runs`: a selection as runs of equal length. Pure.
"""

from tensorkeep.tensors.indexing._boxes import Box, c_strides, cut_into_boxes
from tensorkeep.tensors.indexing._placements import (
    Placement,
    Sharded,
    coordinate_of,
    positions_of_rank,
    region_of_rank,
)
from tensorkeep.tensors.indexing._regions import CoverFault, Region, cover_fault, run_of, shard_range
from tensorkeep.tensors.indexing._rows import Rows, narrowed, rows_of, rows_within
from tensorkeep.tensors.indexing._runs import runs_of
from tensorkeep.tensors.indexing._selection import Axis, Positions, Selection, cover_run, parse_index

__all__ = [
    "Axis",
    "Box",
    "CoverFault",
    "Placement",
    "Positions",
    "Region",
    "Rows",
    "Selection",
    "Sharded",
    "c_strides",
    "coordinate_of",
    "cover_fault",
    "cover_run",
    "cut_into_boxes",
    "narrowed",
    "parse_index",
    "positions_of_rank",
    "region_of_rank",
    "rows_of",
    "rows_within",
    "run_of",
    "runs_of",
    "shard_range",
]

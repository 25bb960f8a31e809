"""How a tensor's elements are read.

- `_blocks`: the elements of a selection, copied out of memory or a source.
- `_base`: `Reader`, what a lazy tensor reads with.
- `_contiguous`: selections and whole files, read into tensors of one library.
- `_strided`: a reader of views that leave gaps, repeat or lie crosswise.
- `_cast`: a reader that converts numbers to another floating-point dtype on their way.
- `_read_plan`: what a read would cost.
"""

from tensorkeep.tensors.readers._base import RUN_LENGTH, Planned, Reader, StoredTensor, stored_pieces
from tensorkeep.tensors.readers._blocks import put_block
from tensorkeep.tensors.readers._cast import CastReader, cast_target
from tensorkeep.tensors.readers._contiguous import TensorReader
from tensorkeep.tensors.readers._read_plan import ReadPlan, plan_reads
from tensorkeep.tensors.readers._strided import Layout, StridedReader

__all__ = [
    "RUN_LENGTH",
    "CastReader",
    "Layout",
    "Planned",
    "ReadPlan",
    "Reader",
    "StoredTensor",
    "StridedReader",
    "TensorReader",
    "cast_target",
    "plan_reads",
    "put_block",
    "stored_pieces",
]

"""How a tensor's elements are read.

- `_base`: `Reader`, the interface of a lazy tensor's reader.
- `_blocks`: the elements of a selection, copied out of memory or a source.
- `_unstored`: what readers have in common whose elements are in no file as they are returned.
- `_contiguous`: tensors as a safetensors file has them; whole files.
- `_pieced`: tensors in several runs of bytes.
- `_engines`: whole tensors loaded by other libraries.
- `_strided`: views with gaps, repeated elements, or transposed.
- `_chunked`: tensors in chunks, mostly compressed.
- `_cast`: numbers converted to another floating-point dtype.
- `_random_bits`: random bits for each element, by its position. Pure.
- `_stochastic`: numbers rounded at random to a narrower dtype.
- `_kept_memory`: memory that each run of a streamed tensor uses again.
- `_read_plan`: what a read would cost.
- `_joined_plan`: the plans of reads from several sources as one. Pure.
"""

from tensorkeep.tensors.readers._base import (
    RUN_LENGTH,
    BlockReader,
    Planned,
    Reader,
    StoredTensor,
    gathers,
    reads_blocks,
    reads_staged,
    stored_pieces,
)
from tensorkeep.tensors.readers._blocks import put_block, take_block
from tensorkeep.tensors.readers._cast import CastReader, cast_target
from tensorkeep.tensors.readers._chunked import ChunkedReader
from tensorkeep.tensors.readers._contiguous import TensorReader, neighbors
from tensorkeep.tensors.readers._engines import ENGINES, EngineReader
from tensorkeep.tensors.readers._joined_plan import joined_plan
from tensorkeep.tensors.readers._kept_memory import keep_freed_memory
from tensorkeep.tensors.readers._pieced import PiecedReader, StoredInPieces, StoredPiece
from tensorkeep.tensors.readers._random_bits import key_of
from tensorkeep.tensors.readers._read_plan import ReadPlan, plan_reads
from tensorkeep.tensors.readers._stochastic import StochasticReader
from tensorkeep.tensors.readers._strided import Layout, StridedReader
from tensorkeep.tensors.readers._unstored import UnstoredReader, run_of_blocks

__all__ = [
    "ENGINES",
    "RUN_LENGTH",
    "BlockReader",
    "CastReader",
    "ChunkedReader",
    "EngineReader",
    "Layout",
    "PiecedReader",
    "Planned",
    "ReadPlan",
    "Reader",
    "StochasticReader",
    "StoredInPieces",
    "StoredPiece",
    "StoredTensor",
    "StridedReader",
    "TensorReader",
    "UnstoredReader",
    "cast_target",
    "gathers",
    "joined_plan",
    "keep_freed_memory",
    "key_of",
    "neighbors",
    "plan_reads",
    "put_block",
    "reads_blocks",
    "reads_staged",
    "run_of_blocks",
    "stored_pieces",
    "take_block",
]

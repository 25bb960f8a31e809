"""One file of tensors: transport, formats and arrays meet here.

- `_selection`: a NumPy index, taken apart into what is read from each axis and what is done with it then. Pure.
- `_regions`: parts of a tensor, and whether several are all of it. Pure.
- `_rows`: where the parts of a region lie in the bytes of its tensor. Pure.
- `_placements`: which part of a tensor a rank has. Pure.
- `_boxes`: a selection cut into reads that are neither too small nor too large. Pure.
- `_runs`: a selection as runs of equal length. Pure.
- `_blocks`: the elements of a selection, copied out of memory or a source.
- `_base`: `Reader`, what a lazy tensor reads with.
- `_reader`: selections and whole files, read into tensors of one library.
- `_strided`: a reader of views that leave gaps, repeat or lie crosswise.
- `_cast`: a reader that converts numbers to another floating-point dtype on their way.
- `_plan`: what a read would cost.
- `_lazy`: `LazyTensor`, shape and dtype now, data on indexing.
- `_assembled`: a reader of a tensor that stands in pieces, in any number of files.
- `_names`: names chosen by patterns, changed, and looked for when misspelt. Pure.
- `_renamed`: what files say of a state, when tensors are renamed. Pure.
- `_mapping`: `LazyTensors`, lazy tensors by name, and `TensorView`: fewer, renamed, cast.
- `_aliases`: tensors that are views of others in their file, each readable alone.
- `_tied`: whole tensors loaded so that those that shared memory share it again.
- `_marked`: what an array library keeps beside elements, given back to tensors that were loaded.
- `_saved`: `SavedTensors`, open safetensors files and the state that they hold.
- `_file`: `TensorFile`, a read-only mapping of name to lazy tensor, and `open_file`.
- `_overlap`: which tensors share memory. Pure.
- `_sharing`: what is stored of those that do. Pure.
- `_planned`: `PlannedTensor`, a leaf whose elements others have.
- `_prepare`: a state on its way to files: its tensors by name, and all else as one text.
- `_digesting`: digests made by another thread while the bytes are written.
- `_body`: all bytes of one file, with digests of what passes.
- `_write`: tensors to bytes or to a file.
"""

from tensorkeep.tensors._aliases import names_of, sharing_of
from tensorkeep.tensors._assembled import AssembledReader, PlacedPiece, assemble
from tensorkeep.tensors._base import Reader, StoredTensor, stored_pieces
from tensorkeep.tensors._body import FileBody, Sealing, file_body, metadata_with_format, sealed_head, write_file
from tensorkeep.tensors._digesting import Digesting
from tensorkeep.tensors._file import TensorFile, file_over, load, open_file
from tensorkeep.tensors._lazy import LazyTensor, load_together
from tensorkeep.tensors._mapping import LazyTensors, OpenTensors, TensorView, counted
from tensorkeep.tensors._names import Renaming, Selector, chooser, chosen_names, nothing_chosen, selectors_of
from tensorkeep.tensors._overlap import overlapping
from tensorkeep.tensors._placements import Placement, Sharded, coordinate_of, positions_of_rank, region_of_rank
from tensorkeep.tensors._plan import ReadPlan
from tensorkeep.tensors._planned import PlannedTensor
from tensorkeep.tensors._prepare import Prepared, prepare, ties_as_text
from tensorkeep.tensors._reader import TensorReader
from tensorkeep.tensors._regions import Region, cover_fault, run_of, shard_range
from tensorkeep.tensors._renamed import renamed_state
from tensorkeep.tensors._rows import narrowed, rows_of
from tensorkeep.tensors._saved import SavedTensors
from tensorkeep.tensors._strided import Layout, StridedReader
from tensorkeep.tensors._tied import Ties
from tensorkeep.tensors._write import check_target, save, serialize_tensors, write_prepared, write_tensors

__all__ = [
    "AssembledReader",
    "Digesting",
    "FileBody",
    "Layout",
    "LazyTensor",
    "LazyTensors",
    "OpenTensors",
    "PlacedPiece",
    "Placement",
    "PlannedTensor",
    "Prepared",
    "ReadPlan",
    "Reader",
    "Region",
    "Renaming",
    "SavedTensors",
    "Sealing",
    "Selector",
    "Sharded",
    "StoredTensor",
    "StridedReader",
    "TensorFile",
    "TensorReader",
    "TensorView",
    "Ties",
    "assemble",
    "check_target",
    "chooser",
    "chosen_names",
    "coordinate_of",
    "counted",
    "cover_fault",
    "file_body",
    "file_over",
    "load",
    "load_together",
    "metadata_with_format",
    "names_of",
    "narrowed",
    "nothing_chosen",
    "open_file",
    "overlapping",
    "positions_of_rank",
    "prepare",
    "region_of_rank",
    "renamed_state",
    "rows_of",
    "run_of",
    "save",
    "sealed_head",
    "selectors_of",
    "serialize_tensors",
    "shard_range",
    "sharing_of",
    "stored_pieces",
    "ties_as_text",
    "write_file",
    "write_prepared",
    "write_tensors",
]

"""A checkpoint into a model.

- `_match`: the names and shapes of a model compared with those of a checkpoint. Pure.
- `_ties`: tied weights: which they are, and whether the saved ones are equal.
- `_parameters`: a model's parameters and buffers: their memory, and the names and modules that it belongs to.
- `_hooks`: names that modules change while they are loaded.
- `_plan`: which tensor of the checkpoint goes into which parameter, checked before anything is written.
- `filling/`: reading a checkpoint's tensors, or parts of them, into existing ones, in bounded memory.
- `_replace`: new memory for the parameters and buffers of a model.
- `_apply`: a load plan, applied: this is where the model is written to.
- `_coverage`: what becomes of each tensor of a checkpoint, as a value.
- `_load`: `load_into`.
- `serving/`: weights for inference engines.
- `arrival/`: what arrived: `coverage` and `assert_loaded`.
- `patching/`: `apply_patch`.
- `_placement`: the part of a tensor that one rank of a device mesh has. Pure.
- `_dtensor`: DTensors: each rank has a part.
- `_replicas`: parts that several ranks have alike, read by one of them.
- `_sharded`: `load_sharded`.
"""

from tensorkeep.models._coverage import Arrival, Coverage, Unfilled
from tensorkeep.models._load import LoadReport, load_into
from tensorkeep.models._match import Match, ShapeMismatch, mismatch_error
from tensorkeep.models._parameters import is_batch_counter
from tensorkeep.models._sharded import load_sharded
from tensorkeep.models._ties import equal_loaded, equal_stored, memory_key, tie_conflicts, tie_error
from tensorkeep.models.arrival import assert_loaded, coverage
from tensorkeep.models.filling import PartJob, check_castable, fill_parts
from tensorkeep.models.patching import apply_patch
from tensorkeep.models.serving import DeferredTensor, ServedWeights, deferred_tensors

__all__ = [
    "Arrival",
    "Coverage",
    "DeferredTensor",
    "LoadReport",
    "Match",
    "PartJob",
    "ServedWeights",
    "ShapeMismatch",
    "Unfilled",
    "apply_patch",
    "assert_loaded",
    "check_castable",
    "coverage",
    "deferred_tensors",
    "equal_loaded",
    "equal_stored",
    "fill_parts",
    "is_batch_counter",
    "load_into",
    "load_sharded",
    "memory_key",
    "mismatch_error",
    "tie_conflicts",
    "tie_error",
]

"""The checkpoints of a run, saved step by step and kept by rules.

- `_root`: the directory of a store.
- `_names`: names of steps. Pure.
- `_record`: the metadata of a step: metrics, and when it was saved. Pure.
- `_steps`: the steps in a store, and whether they are whole.
- `_retention`: rules for which steps are kept. Pure.
- `_rules_file`: the rules of a store, recorded in its directory.
- `_rules`: the rules that a process was given, beside the recorded ones.
- `_removal`: removing steps, those that no rule keeps, and the leftovers of dead processes.
- `_layout`: which tensor goes into which file, so that unchanged ones need not be written again. Pure.
- `_saving`: saving a step, with clean-up before and retention after.
- `_newest`: the newest whole directory of several.
- `_loading`: the state of a step, verified.
- `_step_errors`: errors for steps that do not exist.
- `_html`: the steps in notebooks. Pure.
- `_reading`: what a store reads.
- `_store`: `CheckpointStore`.
"""

from tensorkeep.store._layout import group_tensors
from tensorkeep.store._loading import DamagedStepWarning
from tensorkeep.store._newest import DamagedCheckpointWarning, load_newest_whole
from tensorkeep.store._record import StepRecord, read_record
from tensorkeep.store._retention import Retention, best_steps
from tensorkeep.store._rules import RetentionWarning
from tensorkeep.store._rules_file import RULES_NAME
from tensorkeep.store._rules_file import read_rules as recorded_rules
from tensorkeep.store._steps import Condition, Step, StepFiles, StepListing, is_store
from tensorkeep.store._store import CheckpointStore

__all__ = [
    "RULES_NAME",
    "CheckpointStore",
    "Condition",
    "DamagedCheckpointWarning",
    "DamagedStepWarning",
    "Retention",
    "RetentionWarning",
    "Step",
    "StepFiles",
    "StepListing",
    "StepRecord",
    "best_steps",
    "group_tensors",
    "is_store",
    "load_newest_whole",
    "read_record",
    "recorded_rules",
]

"""The checkpoints of a run, saved step by step and kept by rules.

- `places/`: where the steps are: listed, opened, removed, and swept of what dead processes left.
- `_steps`: the steps as a process knows them.
- `_retention`: rules for which steps are kept. Pure.
- `_rules_file`: the rules of a store, recorded beside its steps.
- `_rules`: the rules that a process was given, beside the recorded ones.
- `_removal`: removing the steps that no rule keeps.
- `_layout`: which tensor goes into which file, so that unchanged ones need not be written again. Pure.
- `_deltas`: saving a step as a patch for the one before.
- `_saving`: saving a step, with clean-up before and retention after.
- `_newest`: the newest whole directory of several.
- `_loading`: the state of a step, verified.
- `_step_errors`: errors for steps that do not exist.
- `_html`: the steps in notebooks. Pure.
- `_reading`: what a store reads.
- `_store`: `CheckpointStore`.
"""

from tensorkeep.store._deltas import DeltaWarning
from tensorkeep.store._layout import group_tensors
from tensorkeep.store._loading import DamagedStepWarning
from tensorkeep.store._newest import DamagedCheckpointWarning, load_newest_whole
from tensorkeep.store._retention import Retention, best_steps
from tensorkeep.store._rules import RetentionWarning
from tensorkeep.store._rules_file import read_rules as recorded_rules
from tensorkeep.store._steps import StepListing
from tensorkeep.store._store import CheckpointStore
from tensorkeep.store.places import (
    RULES_NAME,
    Condition,
    Step,
    StepFiles,
    StepRecord,
    UnguardedStoreWarning,
    is_store,
    place_of,
    read_record,
)

__all__ = [
    "RULES_NAME",
    "CheckpointStore",
    "Condition",
    "DamagedCheckpointWarning",
    "DamagedStepWarning",
    "DeltaWarning",
    "Retention",
    "RetentionWarning",
    "Step",
    "StepFiles",
    "StepListing",
    "StepRecord",
    "UnguardedStoreWarning",
    "best_steps",
    "group_tensors",
    "is_store",
    "load_newest_whole",
    "place_of",
    "read_record",
    "recorded_rules",
]

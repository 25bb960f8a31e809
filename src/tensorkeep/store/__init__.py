"""The checkpoints of a run: saved step by step, kept by rules, found again.

- `_names`: the names that stand in a store.
- `_record`: what is said of a step: metrics, and when it was saved.
- `_steps`: which steps there are, and whether they are whole.
- `_listing`: steps as they are listed.
- `_retention`: which of them are kept.
- `_removal`: how the others go.
- `_layout`: which tensor goes into which file, so that what rests need not be written again.
- `_saving`: a step on its way in, and what is done before and after.
- `_missing`: what is said of a step that is not there.
- `_loading`: the state of a step, checked.
- `_store`: all of it as one object.
"""

from tensorkeep.store._layout import group_tensors
from tensorkeep.store._listing import StepFiles, StepListing
from tensorkeep.store._loading import DamagedStepWarning
from tensorkeep.store._record import StepRecord
from tensorkeep.store._retention import Retention, best_steps
from tensorkeep.store._saving import RetentionWarning
from tensorkeep.store._steps import Condition, Step
from tensorkeep.store._store import CheckpointStore

__all__ = [
    "CheckpointStore",
    "Condition",
    "DamagedStepWarning",
    "Retention",
    "RetentionWarning",
    "Step",
    "StepFiles",
    "StepListing",
    "StepRecord",
    "best_steps",
    "group_tensors",
]

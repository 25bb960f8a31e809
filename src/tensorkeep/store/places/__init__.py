"""Where the steps of a store are. All else in `store/` knows only the protocol.

- `_names`: names of steps, and of the file beside them. Pure.
- `_record`: the metadata of a step: metrics, and when it was saved. Pure.
- `_step`: a step, and what is known of it.
- `_open_step`: a step, opened and checked.
- `_place`: the protocol, and the place that a path names.
- `_directory`: a directory, with locks and renames.
- `_listing`: what a listing of a bucket says. Pure.
- `_bucket`: a bucket, with conditional writes.
"""

from tensorkeep.store.places._bucket import UnguardedStoreWarning
from tensorkeep.store.places._names import BASE_NAME, MAX_RULES_NBYTES, RULES_NAME, check_step
from tensorkeep.store.places._open_step import is_replaced
from tensorkeep.store.places._place import Place, is_store, place_of
from tensorkeep.store.places._record import (
    StepRecord,
    later_than,
    metrics_of,
    read_record,
    record_members,
    time_text,
)
from tensorkeep.store.places._step import Condition, Identity, Step, StepFiles

__all__ = [
    "BASE_NAME",
    "MAX_RULES_NBYTES",
    "RULES_NAME",
    "Condition",
    "Identity",
    "Place",
    "Step",
    "StepFiles",
    "StepRecord",
    "UnguardedStoreWarning",
    "check_step",
    "is_replaced",
    "is_store",
    "later_than",
    "metrics_of",
    "place_of",
    "read_record",
    "record_members",
    "time_text",
]

"""PyTorch's checkpoints, which are pickles: read without importing, calling or building anything that they name.

- `machine/`: the loop over the opcodes.
- `values/`: inert records for what a pickle describes.
- `names/`: the closed table of names that are data.
- `limits/`: bounds on what a pickle may cost.
- `containers/`: the file forms a pickle comes in.
- `audit/`: everything a pickle asks for, for a report.
"""

from tensorkeep.formats.pickles.audit import (
    PICKLE_SUFFIXES,
    Audit,
    Mention,
    audit_pickle,
    audit_tar,
    begins_like_a_pickle,
    check_legacy,
)
from tensorkeep.formats.pickles.containers import is_pickled, read_pickle
from tensorkeep.formats.pickles.limits import DEFAULT_LIMITS, DICTS, LISTS, PickleLimits
from tensorkeep.formats.pickles.machine import Context, Dangerous
from tensorkeep.formats.pickles.values import (
    ArrayRecord,
    CompositeRecord,
    DefaultDict,
    Deque,
    DtypeRecord,
    Form,
    Label,
    Name,
    Namespace,
    PickleDocument,
    StorageRecord,
    StorageView,
    TensorRecord,
    Unknown,
    shown,
)

__all__ = [
    "DEFAULT_LIMITS",
    "DICTS",
    "LISTS",
    "PICKLE_SUFFIXES",
    "ArrayRecord",
    "Audit",
    "CompositeRecord",
    "Context",
    "Dangerous",
    "DefaultDict",
    "Deque",
    "DtypeRecord",
    "Form",
    "Label",
    "Mention",
    "Name",
    "Namespace",
    "PickleDocument",
    "PickleLimits",
    "StorageRecord",
    "StorageView",
    "TensorRecord",
    "Unknown",
    "audit_pickle",
    "audit_tar",
    "begins_like_a_pickle",
    "check_legacy",
    "is_pickled",
    "read_pickle",
    "shown",
]

"""PyTorch's checkpoints, which are pickles, read without importing, calling or building anything they name.

- `machine/`: executes opcodes, with inert records in place of everything that would run.
- `values/`: the inert records.
- `names/`: the closed table of names that stand for data, and the list of dangerous ones.
- `limits/`: bounds on time and memory.
- `containers/`: the file forms that hold pickles: zip, legacy stream, tar, bare.
- `audit/`: everything a pickle asks for, as a report.
"""

from tensorkeep.formats.pickles.audit import (
    PICKLE_SUFFIXES,
    Audit,
    Mention,
    Row,
    are_pickles,
    audit_outline,
    audit_pickle,
    audit_row,
    audit_tar,
    begins_like_a_pickle,
    check_legacy,
    declares_protocol,
    is_legacy,
)
from tensorkeep.formats.pickles.containers import has_outline, is_pickled, read_pickle
from tensorkeep.formats.pickles.limits import DEFAULT_LIMITS, DICTS, LISTS, PickleLimits, children_of
from tensorkeep.formats.pickles.machine import Context, Dangerous
from tensorkeep.formats.pickles.names import paddle_array
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
    Payload,
    PickleDocument,
    StorageRecord,
    StorageView,
    TensorRecord,
    Unknown,
    short_repr,
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
    "Payload",
    "PickleDocument",
    "PickleLimits",
    "Row",
    "StorageRecord",
    "StorageView",
    "TensorRecord",
    "Unknown",
    "are_pickles",
    "audit_outline",
    "audit_pickle",
    "audit_row",
    "audit_tar",
    "begins_like_a_pickle",
    "check_legacy",
    "children_of",
    "declares_protocol",
    "has_outline",
    "is_legacy",
    "is_pickled",
    "paddle_array",
    "read_pickle",
    "short_repr",
]

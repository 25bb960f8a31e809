"""PyTorch's checkpoints, which are pickles: read without importing, calling or building anything that they name.

- `_opcodes`: the table of opcodes.
- `_values`: the inert records that stand for tensors, storages, arrays and everything unknown.
- `_shown`: a value in an error's text.
- `_names`, `_names_python`, `_names_numpy`, `_names_torch`: the closed table of names that are known to be data, and
  what is done where such a name is called.
- `_torch_labels`, `_torch_strided`: torch's constants; its storages, and views that lie inside of them.
- `_alarm`: names that are known to do harm: an alarm, never the defence.
- `_budget`, `_keys`, `_graph`: what would cost too much, or never end when it is hashed or walked through.
- `_context`: what the pickles of one file share.
- `_containers`: what is put into containers.
- `_state`, `_machine`, `_rare_opcodes`: the loop over the opcodes.
- `_document`, `_window`, `_legacy`, `_tar`, `_read`: one file, whatever its form.
- `_sweep`, `_audit`: all that a pickle asks for, for a report.
"""

from tensorkeep.formats.pickles._audit import Audit, Mention, audit_pickle, audit_tar, check_legacy
from tensorkeep.formats.pickles._budget import DEFAULT_LIMITS, PickleLimits
from tensorkeep.formats.pickles._context import Context, Dangerous
from tensorkeep.formats.pickles._document import Form, PickleDocument
from tensorkeep.formats.pickles._graph import DICTS, LISTS
from tensorkeep.formats.pickles._read import is_pickled, read_pickle
from tensorkeep.formats.pickles._shown import shown
from tensorkeep.formats.pickles._sweep import PICKLE_SUFFIXES, begins_like_a_pickle
from tensorkeep.formats.pickles._values import (
    ArrayRecord,
    CompositeRecord,
    DefaultDict,
    Deque,
    DtypeRecord,
    Label,
    Name,
    Namespace,
    StorageRecord,
    StorageView,
    TensorRecord,
    Unknown,
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

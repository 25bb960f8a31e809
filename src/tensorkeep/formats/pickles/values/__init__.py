"""Inert records of what a pickle describes.

- `_records`: records of tensors, storages, arrays and everything unknown.
- `_payload`: elements of large arrays, which stay in the file.
- `_repr`: values in error messages.
- `_document`: everything that was read from one file.
"""

from tensorkeep.formats.pickles.values._document import Form, PickleDocument
from tensorkeep.formats.pickles.values._payload import Payload
from tensorkeep.formats.pickles.values._records import (
    ArrayRecord,
    CompositeRecord,
    DefaultDict,
    Deque,
    DtypeRecord,
    Label,
    LabelKind,
    Name,
    Namespace,
    StorageRecord,
    StorageView,
    TensorRecord,
    Unknown,
)
from tensorkeep.formats.pickles.values._repr import short_repr

__all__ = [
    "ArrayRecord",
    "CompositeRecord",
    "DefaultDict",
    "Deque",
    "DtypeRecord",
    "Form",
    "Label",
    "LabelKind",
    "Name",
    "Namespace",
    "Payload",
    "PickleDocument",
    "StorageRecord",
    "StorageView",
    "TensorRecord",
    "Unknown",
    "short_repr",
]

"""Inert records for what a pickle describes.

- `_records`: the inert records that stand for tensors, storages, arrays and everything unknown.
- `_repr`: a value in an error's text.
- `_document`: one file, whatever its form.
"""

from tensorkeep.formats.pickles.values._document import Form, PickleDocument
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
from tensorkeep.formats.pickles.values._repr import shown

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
    "PickleDocument",
    "StorageRecord",
    "StorageView",
    "TensorRecord",
    "Unknown",
    "shown",
]

"""Metadata that say something of single tensors, by their names: they follow tensors that are renamed or left out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from tensorkeep.tensors import LazyTensors, TensorView

_KEYS: Final = (
    *("arrow.types", "numpy.types", "onnx.widened", "openvino.widened"),
    *("tensorflow.dtypes", "tensorflow.variables"),
)
"""Keys under which files of other formats are read with such metadata, as JSON objects by name."""


def with_named_texts(new: LazyTensors, wanted: LazyTensors) -> LazyTensors:
    """Return new tensors, each made of the wanted one at its place, with what metadata say of them."""
    metadata = new.metadata if new.has_metadata else {}
    if metadata.keys().isdisjoint(_KEYS):
        return new
    names = dict(zip(wanted, new, strict=True))
    texts = {key: _renamed(text, names) if key in _KEYS else text for key, text in metadata.items()}
    if texts == metadata:
        return new
    kept = {key: text for key, text in texts.items() if text is not None}
    return TensorView(dict(new), path=new.path, metadata=kept, state=new.state, beside=new)


def _renamed(text: str, names: Mapping[str, str]) -> str | None:
    """Return a JSON object by the new names; None if no name is left. Any other text is left as it is."""
    try:
        found = msgspec.json.decode(text, type=dict[str, Any])
    except msgspec.MsgspecError:
        return text
    kept = {names[name]: value for name, value in found.items() if name in names}
    if list(kept.items()) == list(found.items()):
        return text
    return msgspec.json.encode(kept).decode() if kept else None

"""Metadata that say something of single tensors, by their names: they follow tensors that are renamed or left out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from tensorkeep.tensors import LazyTensors, TensorView

_KEYS: Final = (
    *("arrow.types", "numpy.types", "onnx.widened", "openvino.widened"),
    *("tensorflow.dtypes", "tensorflow.variables"),
)
"""Keys under which files of other formats are read with such metadata, as JSON objects by name."""

_SPARSE: Final = "onnx.sparse"
"""The same by what the names of two tensors begin with: the parts of a sparse one."""

_VALUES: Final = ".values"
_INDICES: Final = ".indices"


def with_named_texts(new: LazyTensors, wanted: LazyTensors) -> LazyTensors:
    """Return new tensors, each made of the wanted one at its place, with what metadata say of them."""
    metadata = new.metadata if new.has_metadata else {}
    if metadata.keys().isdisjoint((*_KEYS, _SPARSE)):
        return new
    texts = rename_texts(metadata, dict(zip(wanted, new, strict=True)))
    if texts == metadata:
        return new
    return TensorView(dict(new), path=new.path, metadata=texts, state=new.state, beside=new)


def rename_texts(metadata: Mapping[str, str], names: Mapping[str, str]) -> dict[str, str]:
    """Return metadata for tensors that have new names; `names` has the old and new name of each that is kept.

    A text that is not a JSON object by names is left as it is, and one without a name that is kept is left out.
    """
    sparse = dict(_sparse_names(names)) if _SPARSE in metadata else {}
    texts = {
        key: _renamed(text, sparse if key == _SPARSE else names) if key in {*_KEYS, _SPARSE} else text
        for key, text in metadata.items()
    }
    return {key: text for key, text in texts.items() if text is not None}


def _sparse_names(names: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield old and new name of each sparse tensor whose two parts are kept and still belong together."""
    for old, new in names.items():
        before, after = old.removesuffix(_VALUES), new.removesuffix(_VALUES)
        if before != old and after != new and names.get(before + _INDICES) == after + _INDICES:
            yield before, after


def _renamed(text: str, names: Mapping[str, str]) -> str | None:
    found = _by_name(text)
    if found is None:
        return text
    kept = {names[name]: value for name, value in found.items() if name in names}
    if list(kept.items()) == list(found.items()):
        return text
    return msgspec.json.encode(kept).decode() if kept else None


def _by_name(text: str) -> dict[str, Any] | None:
    """Return the JSON object that a text is; None for any other text."""
    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except msgspec.MsgspecError:
        return None


def join_metadata(sources: Sequence[LazyTensors]) -> dict[str, str]:
    """Return the metadata of sources whose tensors are joined, which have different names.

    Each keeps the text about its own tensors. If several have another key, the text of the first is kept.
    """
    joined = {key: text for source in reversed(sources) for key, text in source.metadata.items()}
    for key in joined.keys() & {*_KEYS, _SPARSE}:
        joined[key] = _joined(key, [source for source in sources if key in source.metadata])
    return joined


def _joined(key: str, sources: Sequence[LazyTensors]) -> str:
    """Return one JSON object of several; the first text if they are not all such objects, or there is only one."""
    first = sources[0].metadata[key]
    if len(sources) == 1 or any(_by_name(source.metadata[key]) is None for source in sources):
        return first
    every: dict[str, Any] = {}
    for source in sources:
        own = rename_texts({key: source.metadata[key]}, {name: name for name in source})
        every |= _by_name(own.get(key, "{}")) or {}
    return msgspec.json.encode(every).decode()

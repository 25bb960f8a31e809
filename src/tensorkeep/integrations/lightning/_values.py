"""Objects in checkpoints of Lightning converted to named data, and back.

Only these classes are known: Lightning's attribute dict, configurations of OmegaConf, and references to a few
classes. Others must be passed by the caller.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import torch

from tensorkeep.errors import FormatError
from tensorkeep.integrations.lightning._configs import CONFIGS, config_as_data, config_from_data
from tensorkeep.integrations.lightning._library import attribute_dict
from tensorkeep.integrations.lightning._rewriting import Rewriter
from tensorkeep.state import NamedData

ATTRIBUTE_DICTS: Final = frozenset(
    f"{module}:AttributeDict"
    for module in (
        "lightning.fabric.utilities.data",
        "lightning.pytorch.utilities.parsing",
        "lightning_fabric.utilities.data",
        "pytorch_lightning.utilities.parsing",
    )
)
"""Names of Lightning's dict class whose items are attributes."""

_CLASS: Final = "builtins:type"
_CLASSES: Final = ATTRIBUTE_DICTS | CONFIGS | {"builtins:dict", "argparse:Namespace"}
"""Names of classes that may be referenced: Lightning stores the class of hyper-parameters."""

_OWNED: Final = frozenset({torch.Tensor, torch.nn.Parameter})


def as_data(checkpoint: Any, classes: Mapping[str, type]) -> Any:
    """Convert known objects in a checkpoint to data; unknown ones stay, and are refused when it is saved."""
    return _ToData(classes).rewriter.rewrite(checkpoint)


def from_data(checkpoint: Any, classes: Mapping[str, type]) -> Any:
    """Undo `as_data`, and move tensors to memory of their own.

    The tensors of the model are left in place, since they are copied into the model anyway. An optimizer may use the
    others for days: they need memory that does not depend on a file, and that is aligned as torch aligns it, since
    the last bits of sums depend on that.
    """
    weights = checkpoint.get("state_dict") if isinstance(checkpoint, dict) else None
    left = weights.values() if isinstance(weights, dict) else ()
    conversion = _FromData(classes, {id(tensor) for tensor in left})
    try:
        return conversion.rewriter.rewrite(checkpoint)
    finally:
        conversion.storages.clear()


def class_as_data(name: str) -> NamedData:
    """Return the data for a reference to a class."""
    return NamedData("dataclass", _CLASS, {"name": name})


def is_known_class(name: str) -> bool:
    """Say whether a class may be referenced without being passed by the caller."""
    return name in _CLASSES


def _name_of(cls: type) -> str:
    return f"{cls.__module__}:{cls.__qualname__}"


class _ToData:
    """One conversion to data."""

    def __init__(self, classes: Mapping[str, type]) -> None:
        self._classes = classes
        self._names: dict[type, str] = {}
        self.rewriter = Rewriter(self._replace)

    def _replace(self, value: Any) -> Any:
        kind = type(value)
        name = self._names.get(kind)
        if name is None:
            name = self._names[kind] = _name_of(kind)
        if name in ATTRIBUTE_DICTS:
            return NamedData("dataclass", name, {"items": self.rewriter.value(dict(value))})
        if name in CONFIGS:
            data = config_as_data(value, self.rewriter.value)
            return value if data is None else data
        if isinstance(value, type):
            own = _name_of(value)
            return class_as_data(own) if own in _CLASSES or self._classes.get(own) is value else value
        return value


class _FromData:
    """One conversion from data."""

    def __init__(self, classes: Mapping[str, type], left: set[int]) -> None:
        self._classes = classes
        self._left = left
        self.storages: dict[int, tuple[Any, Any]] = {}
        self.rewriter = Rewriter(self._replace)

    def _replace(self, value: Any) -> Any:
        kind = type(value)
        if kind in _OWNED:
            return value if id(value) in self._left else self._owned(value)
        if kind is not NamedData:
            return value
        if value.class_name in ATTRIBUTE_DICTS:
            return self._attribute_dict(value)
        if value.class_name in CONFIGS:
            made = config_from_data(value, self.rewriter.value, self._classes.get)
            return value if made is None else made
        return self._class(value) if value.class_name == _CLASS else value

    def _attribute_dict(self, data: NamedData) -> Any:
        items = data.fields.get("items")
        if type(items) is not dict:
            raise FormatError("an attribute dict has no items", found=type(items).__name__)
        made = attribute_dict(data.class_name)()
        made.update(self.rewriter.value(items))
        return made

    def _class(self, data: NamedData) -> Any:
        name = data.fields.get("name")
        if type(name) is not str:
            raise FormatError("a class reference has no name", found=type(name).__name__)
        if name in self._classes:
            return self._classes[name]
        found = _found(name) if name in _CLASSES else None
        return data if found is None else found

    def _owned(self, tensor: torch.Tensor) -> torch.Tensor:
        """Copy a tensor; tensors that share a storage share its copy."""
        if tensor.device.type != "cpu" or tensor.layout != torch.strided or tensor.is_quantized or tensor.is_nested:
            return tensor
        made = tensor.detach().clone() if tensor.is_conj() or tensor.is_neg() else self._view(tensor)
        if type(tensor) is torch.nn.Parameter:
            return torch.nn.Parameter(made, tensor.requires_grad)
        return made.requires_grad_(tensor.requires_grad)

    def _view(self, tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        known = self.storages.get(storage._cdata)
        if known is None:
            whole = torch.empty(0, dtype=torch.uint8).set_(storage)
            known = self.storages[storage._cdata] = storage, whole.clone().untyped_storage()
        empty = torch.empty(0, dtype=tensor.dtype)
        return empty.set_(known[1], tensor.storage_offset(), tensor.shape, tensor.stride())


def _found(name: str) -> type | None:
    """Return one of the known classes."""
    if name in ATTRIBUTE_DICTS:
        found: type = attribute_dict(name)
        return found
    if name in CONFIGS:
        import omegaconf

        return getattr(omegaconf, name.partition(":")[2], None)
    import argparse

    return {"builtins:dict": dict, "argparse:Namespace": argparse.Namespace}[name]

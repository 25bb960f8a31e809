"""Blocks of another size than the configuration says: loaders that believe it compute other numbers. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from tensorkeep.quantized._record import LayoutFinding, QuantizedTensor
from tensorkeep.quantized._settings import Settings, module_of

_OF_ALL_MODULES: Final = frozenset(("gptq", "awq"))
"""Layouts whose configuration has one size for all modules."""

_OF_GROUPS: Final = frozenset(("pack-quantized", "int-quantized", "float-quantized", "block-fp8"))
"""Layouts whose configuration has sizes of groups of modules, or of blocks."""


def examine_sizes(tensors: Mapping[str, QuantizedTensor], settings: Settings) -> Iterator[LayoutFinding]:
    """Give the tensors whose scales are for more or fewer elements than the configuration says."""
    for name, tensor in tensors.items():
        declared = _declared(tensor, settings)
        if declared is None:
            continue
        found = tensor.block[-len(declared) :]
        if found == declared:
            continue
        wanted = tuple(map(min, declared, tensor.shape[-len(declared) :]))
        if found[-len(wanted) :] != wanted:
            yield LayoutFinding(
                "declared",
                f"tensor `{name}` has blocks of another size than the configuration says",
                name,
                expected=str(list(wanted)),
                found=str(list(found)),
                is_error=False,
            )


def _declared(tensor: QuantizedTensor, settings: Settings) -> tuple[int, ...] | None:
    """Return the extents of a block as the configuration has them, of the last dimensions; None without any."""
    if tensor.layout in _OF_ALL_MODULES:
        size = settings.config.group_size
        return (size,) if size and size > 0 else None
    if tensor.layout not in _OF_GROUPS:
        return None
    if settings.block or not settings.config.groups:
        return settings.block
    group = settings.group_of(module_of(tensor.name))
    if group is None:
        return None
    return group.block or ((group.group_size,) if group.group_size else None)

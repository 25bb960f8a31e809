"""NVFP4 of ModelOpt as compressed-tensors names it, and the reverse."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from tensorkeep.errors import RefusedError, TensorNotFoundError, UnsupportedError
from tensorkeep.quantized import Layouts, QuantizedTensor, layouts
from tensorkeep.tensors import LazyTensor, LazyTensors, Region, TensorView, computed_tensor, load_together
from tensorkeep.texts import listed
from tensorkeep.transforms.arranging import part_of
from tensorkeep.transforms.relabelling._names import NVFP4_LAYOUTS, RECIPROCAL, Nvfp4Layout, PartNames
from tensorkeep.transforms.relabelling._scales import (
    METADATA_KEY,
    Original,
    Scale,
    emit_originals,
    lost,
    original_of,
    originals_in,
    reciprocal,
)


def relabel(tensors: LazyTensors, to: Nvfp4Layout) -> TensorView:
    """Return a view of a checkpoint in NVFP4 with the names and scales of another library.

    ModelOpt and compressed-tensors store the same blocks, but one stores the reciprocal of the other's tensor scale.
    Blocks and their scales are copied; only scales of whole tensors and of inputs are read and computed. Where a
    reciprocal loses bits, metadata keeps the original, so that relabelling back gives the same tensors, bit for bit.

    Args:
        tensors: An open file, a checkpoint or a view.
        to: `"compressed-tensors"` or `"modelopt"`.

    Raises:
        TensorNotFoundError: If no tensor is in the other layout (also a KeyError).
        RefusedError: If there are tensors quantized in other ways, a scale has no reciprocal, a part is missing, or
            two tensors would get the same name.
        UnsupportedError: If there is no such layout.
        TransportError: If scales cannot be read.
    """
    if to not in NVFP4_LAYOUTS:
        expected = " or ".join(NVFP4_LAYOUTS)
        raise UnsupportedError("there is no such layout of NVFP4", expected=expected, found=repr(to))
    [old] = [names for layout, names in NVFP4_LAYOUTS.items() if layout != to]
    new = NVFP4_LAYOUTS[to]
    found = _checked(layouts(tensors), tensors, old)
    scales = _read_scales(tensors, found.values())
    kept = originals_in(tensors.metadata)
    originals: dict[str, Original] = {}
    changed: dict[str, tuple[str, LazyTensor]] = {}
    for name, quantized in found.items():
        for role, part in quantized.parts.items():
            new_name = new.name(role, name)
            lazy = tensors[part]
            if role in RECIPROCAL:
                scale = scales[part]
                inverse = original_of(scale, kept.get(part))
                if inverse is None:
                    inverse = reciprocal(part, scale, new.scalar)
                    original = lost(part, scale, inverse, old.scalar)
                    originals |= {} if original is None else {new_name: original}
                lazy = _constant(lazy, inverse)
            changed[part] = (new_name, lazy)
    metadata = {key: text for key, text in tensors.metadata.items() if key != METADATA_KEY}
    return TensorView(
        _in_order(tensors, changed), path=tensors.path, metadata={**metadata, **emit_originals(originals)}
    )


def _checked(found: Layouts, tensors: LazyTensors, old: PartNames) -> dict[str, QuantizedTensor]:
    """Return the tensors in NVFP4, unless there is more to relabel than these."""
    for finding in found.broken.values():
        raise RefusedError(
            finding.message,
            path=tensors.path,
            tensor=finding.tensor,
            expected=finding.expected,
            found=finding.found,
            hint="`tensorkeep check` lists all problems",
        )
    others = [f"`{name}` ({each.layout})" for name, each in found.tensors.items() if each.layout != old.layout]
    if len(others) == len(found.tensors):
        raise TensorNotFoundError(
            f"no tensor is in the layout {old.layout}",
            path=tensors.path,
            found=listed(others, 3) or "no quantized tensors",
        )
    if others:
        raise RefusedError(
            "some tensors are quantized in ways that cannot be relabelled",
            path=tensors.path,
            found=listed(others, 5),
        )
    return dict(found.tensors)


def _read_scales(tensors: LazyTensors, found: Any) -> dict[str, Scale]:
    """Read the scales that have reciprocals."""
    names = [part for each in found for role, part in each.parts.items() if role in RECIPROCAL]
    for name in names:
        lazy = tensors[name]
        if lazy.dtype != "F32" or lazy.n_elements > 2**16:
            raise RefusedError(
                f"`{name}` is not a scale in F32",
                path=tensors.path,
                tensor=name,
                found=f"{lazy.dtype} {list(lazy.shape)}",
            )
    read = load_together({name: tensors[name].with_framework("numpy") for name in dict.fromkeys(names)})
    return {name: np.asarray(scale, np.float32) for name, scale in read.items()}


def _constant(like: LazyTensor, scale: Scale) -> LazyTensor:
    """Return a lazy tensor of this scale, of the library of another."""
    nothing = part_of(like, Region((0,) * like.ndim, (0,) * like.ndim)) if like.ndim else like
    give = partial(_given, scale)
    return computed_tensor(like.name, give, (nothing,), scope="tensor", shape=scale.shape, framework="numpy")


def _given(scale: Scale, _: Any) -> Scale:
    return scale


def _in_order(tensors: LazyTensors, changed: dict[str, tuple[str, LazyTensor]]) -> dict[str, LazyTensor]:
    new: dict[str, LazyTensor] = {}
    for name, lazy in tensors.items():
        new_name, tensor = changed.get(name, (name, lazy))
        if new_name in new:
            raise RefusedError(f"two tensors would be called `{new_name}`", path=tensors.path, tensor=new_name)
        new[new_name] = tensor
    return new

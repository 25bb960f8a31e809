"""NVFP4 of one library as another stores it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from math import prod
from typing import Any

import msgspec
import numpy as np

from tensorkeep.errors import RefusedError, TensorNotFoundError, UnsupportedError
from tensorkeep.formats.gguf import GgufRecord, emit_record, parse_record
from tensorkeep.quantized import layouts
from tensorkeep.tensors import LazyTensor, LazyTensors, Region, TensorView, computed_tensor, load_together
from tensorkeep.texts import listed
from tensorkeep.transforms.arranging import part_of
from tensorkeep.transforms.relabelling._names import NVFP4_LAYOUTS, SCALES_OF_ALL, Nvfp4Layout, PartNames
from tensorkeep.transforms.relabelling._parts import (
    Nvfp4Tensor,
    given,
    in_ggml_blocks,
    of_blocks,
    of_layout,
    taken,
)
from tensorkeep.transforms.relabelling._scales import (
    METADATA_KEY,
    Original,
    Scale,
    carried,
    emit_originals,
    lost,
    originals_in,
)

_MAX_N_SCALES = 2**16


def relabel(tensors: LazyTensors, to: Nvfp4Layout) -> TensorView:
    """Return a view of a checkpoint in NVFP4 in the form of another library.

    ModelOpt and compressed-tensors store the same blocks, but one stores the reciprocal of the other's tensor scale.
    GGUF has the same numbers and scales in another order, and the tensor scale beside them. So blocks are copied, or
    put in order when they are read; only scales of whole tensors and of inputs are read now. Where a reciprocal loses
    bits, metadata keeps the original. Relabelling back gives the same tensors, bit for bit.

    For GGUF, tensors become blocks as bytes, which `tensorkeep.export` writes as NVFP4. They keep their names, and no
    keys are added that llama.cpp needs to run a model.

    Args:
        tensors: An open file, a checkpoint or a view.
        to: `"compressed-tensors"`, `"gguf"` or `"modelopt"`.

    Raises:
        TensorNotFoundError: If no tensor is in another layout (also a KeyError).
        RefusedError: If there are tensors quantized in other ways, a scale has no reciprocal, a part is missing,
            GGUF has no such block or number of scales, or two tensors would get the same name. If a scale of 16
            numbers is negative or NaN, which GGUF and the others read differently, when it is read.
        FormatError: If metadata of a GGUF file are malformed.
        UnsupportedError: If there is no such layout.
        TransportError: If scales cannot be read.
    """
    if to not in NVFP4_LAYOUTS:
        expected = " or ".join(NVFP4_LAYOUTS)
        raise UnsupportedError("there is no such layout of NVFP4", expected=expected, found=repr(to))
    new, record = NVFP4_LAYOUTS[to], parse_record(tensors.metadata)
    old, found = _found(tensors, new, record)
    scales = _read_scales(tensors, found)
    kept = originals_in(tensors.metadata)
    originals: dict[str, Original] = {}
    changed: dict[str, list[tuple[str, LazyTensor]]] = {}
    for one in found:
        blocks = given(one, taken(tensors, one, old), new)
        changed |= {part: [] for part in one.stored.values()}
        changed[one.stored["data"]] = [(new.name(role, one.name), lazy) for role, lazy in blocks.items()]
        for role in sorted({"scale", *one.stored} & SCALES_OF_ALL, reverse=True):
            stored, new_name = one.stored.get(role), new.name(role, one.name)
            scale = np.ones(old.scalar, np.float32) if stored is None else scales[stored]
            _check_number(one, scale, "gguf" in {old.key, new.key})
            value = carried(stored or new_name, scale, old, new, kept.get(stored or ""))
            original = lost(new_name, scale, value, old, new)
            if original is not None:
                originals[new_name] = original
            elif new.key == "gguf" and role == "scale" and _is_one(value):
                continue  # as llama.cpp writes it
            data = one.stored["data"]
            changed[stored or data].append((new_name, _constant(tensors[data], new_name, value)))
    metadata = {key: text for key, text in tensors.metadata.items() if key != METADATA_KEY}
    if new.key == "gguf":
        metadata |= emit_record(_with_blocks(record, found))
    view = _in_order(tensors, changed)
    _refuse_other_scales(tensors, view, found, new)
    texts = {**metadata, **emit_originals(originals)}
    return TensorView(view, path=tensors.path, metadata=texts, beside=tensors)


def _found(tensors: LazyTensors, new: PartNames, record: GgufRecord) -> tuple[PartNames, list[Nvfp4Tensor]]:
    """Return the tensors in NVFP4 and their layout, unless there is more to relabel than these."""
    recognized = layouts(tensors)
    for finding in recognized.broken.values():
        raise RefusedError(
            finding.message,
            path=tensors.path,
            tensor=finding.tensor,
            expected=finding.expected,
            found=finding.found,
            hint="`tensorkeep check` lists all problems",
        )
    blocks = in_ggml_blocks(tensors, record)
    of_name = {name: each for name, each in recognized.tensors.items() if name not in blocks}
    forms = {name: each.layout for name, each in of_name.items()}
    forms |= {name: "gguf" if type_ == "NVFP4" else type_ for name, (type_, _) in blocks.items()}
    candidates = [names for names in NVFP4_LAYOUTS.values() if names is not new and names.layout in forms.values()]
    if not candidates:
        raise TensorNotFoundError(
            "no tensor is in NVFP4 as another library stores it",
            path=tensors.path,
            found=listed((f"`{name}` ({form})" for name, form in forms.items()), 3) or "no quantized tensors",
        )
    old = candidates[0]
    others = [f"`{name}` ({form})" for name, form in forms.items() if form != old.layout]
    if others:
        raise RefusedError(
            "some tensors are quantized in ways that cannot be relabelled",
            path=tensors.path,
            found=listed(others, 5),
        )
    if old.key == "gguf":
        return old, [of_blocks(tensors, name, shape) for name, (_, shape) in blocks.items()]
    return old, [of_layout(each) for each in of_name.values()]


def _read_scales(tensors: LazyTensors, found: Iterable[Nvfp4Tensor]) -> dict[str, Scale]:
    """Read the scales that are not in the blocks."""
    names = [part for each in found for role, part in each.stored.items() if role in SCALES_OF_ALL]
    for name in names:
        lazy = tensors[name]
        if lazy.dtype != "F32" or lazy.n_elements > _MAX_N_SCALES:
            raise RefusedError(
                f"`{name}` is not a scale in F32",
                path=tensors.path,
                tensor=name,
                found=f"{lazy.dtype} {list(lazy.shape)}",
            )
    read = load_together({name: tensors[name].with_framework("numpy") for name in dict.fromkeys(names)})
    return {name: np.asarray(scale, np.float32) for name, scale in read.items()}


def _check_number(one: Nvfp4Tensor, scale: Scale, is_gguf: bool) -> None:
    """Refuse scales of rows: GGUF has one for a matrix."""
    n_matrices = prod(one.shape[:-2])
    if is_gguf and scale.size not in {1, n_matrices}:
        raise RefusedError(
            f"tensor `{one.name}` has more scales than GGUF",
            tensor=one.name,
            expected="one number" if n_matrices == 1 else f"one number, or {n_matrices:,}",
            found=f"{scale.size:,}",
        )


def _is_one(value: Scale) -> bool:
    return value.size == 1 and bool((value == 1).all())


def _constant(like: LazyTensor, name: str, scale: Scale) -> LazyTensor:
    """Return a lazy tensor of this scale, of the library of another."""
    stored = like.raw() if like.is_quantized else like
    nothing = part_of(stored, Region((0,) * stored.ndim, (0,) * stored.ndim)) if stored.ndim else stored
    give = partial(_given, scale)
    return computed_tensor(name, give, (nothing,), scope="tensor", dtype="F32", shape=scale.shape, framework="numpy")


def _given(scale: Scale, _: Any) -> Scale:
    return scale


def _with_blocks(record: GgufRecord, found: Iterable[Nvfp4Tensor]) -> GgufRecord:
    """Return a record that says which bytes are blocks."""
    blocks = {one.name: ("NVFP4", one.shape) for one in found}
    return msgspec.structs.replace(record, is_big_endian=False, tensors={**record.tensors, **blocks})


def _in_order(tensors: LazyTensors, changed: Mapping[str, list[tuple[str, LazyTensor]]]) -> dict[str, LazyTensor]:
    new: dict[str, LazyTensor] = {}
    for name, lazy in tensors.items():
        for new_name, tensor in changed.get(name, [(name, lazy)]):
            if new_name in new:
                raise RefusedError(f"two tensors would be called `{new_name}`", path=tensors.path, tensor=new_name)
            new[new_name] = tensor
    return new


def _refuse_other_scales(
    tensors: LazyTensors, view: Mapping[str, LazyTensor], found: Iterable[Nvfp4Tensor], new: PartNames
) -> None:
    """Refuse tensors that would become scales by their names alone."""
    for one in found:
        for role in SCALES_OF_ALL:
            name = new.name(role, one.name)
            if name in view and name in tensors and name not in one.stored.values():
                raise RefusedError(
                    f"tensor `{name}` would be taken for the scale of another",
                    path=tensors.path,
                    tensor=name,
                    hint="Rename it first",
                )

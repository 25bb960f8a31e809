"""An adapter added to its base model."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from functools import partial
from math import prod
from typing import Any, Final

import msgspec

from tensorkeep.checkpoint import refuse_quantized
from tensorkeep.errors import DtypeError, FormatError, RefusedError, SourceMissingError, UnsupportedError
from tensorkeep.merging._computing import Numbers, computed_in_blocks
from tensorkeep.merging.lora._names import Change, changes_of
from tensorkeep.merging.lora._orientation import Orientations
from tensorkeep.merging.lora._settings import LoraSettings, parse_settings
from tensorkeep.merging.lora._sums import bias_plus, weight_plus_product
from tensorkeep.tensors import LazyTensor, LazyTensors, TensorView, computed_tensor, require_open
from tensorkeep.transport import ByteRange, join, open_source, split

_NAME: Final = "adapter_config.json"
_MAX_NBYTES: Final = 2**20


def add_lora(
    base: LazyTensors, adapter: LazyTensors, *, settings: str | os.PathLike[str] | Mapping[str, Any] | None = None
) -> TensorView:
    """Add a peft LoRA adapter to the model that it was trained on.

        with tensorkeep.open("base/") as base, tensorkeep.open("adapter/") as adapter:
            tensorkeep.save_checkpoint(add_lora(base, adapter), "merged/")

    Linear layers, embeddings and convolutions are supported, also with rsLoRA, DoRA (linear layers only),
    `alpha_pattern`, biases, and modules that the adapter holds whole. If a tensor of the adapter is not used, that is
    an error. Hu et al., "LoRA", 2021 (arXiv:2106.09685); Liu et al., "DoRA", 2024 (arXiv:2402.09353). The numbers
    equal peft's from `merge_and_unload`, except that half-precision numbers are rounded once, not twice.

    Args:
        base: An open file, checkpoint or view. Its names may lack a prefix that the adapter has, such as
            `transformer.`, or have one more.
        adapter: The adapter's tensors, by peft's names, opened for the same framework.
        settings: The path of an `adapter_config.json`, or its content as a dict; the file beside the adapter if None.

    Returns:
        A view of the base model with changed weights, which are computed by rows in F32 (F64 where the base has it)
        when they are read, in the base's dtypes.

    Raises:
        TensorNotFoundError: If a tensor of the adapter has no place in the base model (also a KeyError).
        RefusedError: If shapes do not fit, or a tensor that changes is quantized.
        FormatError: If the settings are not an adapter's.
        UnsupportedError: If the adapter is of a kind that cannot be added.
        DtypeError: If a tensor that changes is not floating point, or packs elements into bytes (F4, F6).
        TransportError: If the settings cannot be read.
    """
    require_open(base, adapter)
    path, text = _text_of(settings, adapter)
    parsed = parse_settings(text, path)
    changes = changes_of(adapter, base, parsed, adapter.path)
    refuse_quantized(base, changes)
    turns = Orientations(base, parsed.fan_in_fan_out)
    changed = {name: _changed(name, change, base, adapter, parsed, turns) for name, change in changes.items()}
    metadata = base.metadata if base.has_metadata else None
    state = base.state if changed.keys() <= base.keys() else None
    return TensorView({**base, **changed}, path=base.path, metadata=metadata, state=state, beside=base)


def _text_of(settings: str | os.PathLike[str] | Mapping[str, Any] | None, adapter: LazyTensors) -> tuple[str, bytes]:
    if isinstance(settings, Mapping):
        return adapter.path, msgspec.json.encode(settings)
    if settings is None:
        try:
            return join(split(adapter.path)[0], _NAME), adapter.companion(_NAME, max_nbytes=_MAX_NBYTES)
        except SourceMissingError as error:
            hint = "It says how the adapter is scaled: settings= (--settings) takes it from elsewhere"
            raise error.with_fields(hint=hint) from None
    path = os.fspath(settings)
    with closing(open_source(path, backend="pread")) as source:
        if source.nbytes > _MAX_NBYTES:
            raise FormatError(
                "the adapter's settings are too large",
                path=path,
                expected=f"at most {_MAX_NBYTES:,} bytes",
                found=f"{source.nbytes:,}",
            )
        return path, bytes(source.read(ByteRange(0, source.nbytes)))


def _changed(
    name: str,
    change: Change,
    base: LazyTensors,
    adapter: LazyTensors,
    settings: LoraSettings,
    turns: Orientations,
) -> LazyTensor:
    if change.bias is not None:
        return _with_bias(name, change, base, adapter, settings)
    weight = base[name] if change.whole is None else _replaced(name, adapter[change.whole], base)
    if change.a is None:
        return weight
    a, b = adapter[change.a], adapter[change.b or ""]
    is_turned = _is_turned(name, weight, a, b, None if change.is_embedding else turns)
    scale = settings.scale(change.layer, a.shape[0])
    left, right = (_turned(a), _turned(b)) if is_turned else (b, a)
    if change.magnitude is None:
        return _with_rows(name, scale, right, weight, left)
    if is_turned or weight.ndim != 2:
        raise UnsupportedError(
            f"the adapter's change of tensor `{name}` is not supported",
            tensor=name,
            expected="DoRA of a linear layer",
            found="DoRA of an embedding, a convolution or a transposed weight",
            hint="Merge the adapter with peft",
        )
    magnitude = adapter[change.magnitude]
    if magnitude.shape != weight.shape[:1]:
        raise _misfit(name, weight, magnitude)
    return _with_rows(name, scale, right, weight, left, magnitude)


def _with_rows(name: str, scale: float, right: LazyTensor, *inputs: LazyTensor) -> LazyTensor:
    _refuse_integers(name, (*inputs, right))
    compute = weight_plus_product(scale, right, inputs)
    return computed_tensor(name, compute, inputs, scope="rows", framework="numpy", in_threads=True)


def _with_bias(
    name: str, change: Change, base: LazyTensors, adapter: LazyTensors, settings: LoraSettings
) -> LazyTensor:
    """Add to the trained bias, or to that of the base."""
    added = adapter[change.bias or ""]
    bias = base[name] if change.whole is None else _replaced(name, adapter[change.whole], base)
    factor = adapter.get((change.bias or "").removesuffix("bias") + "weight")
    if factor is None or factor.ndim < 2 or not factor.shape[1] or added.shape != bias.shape or bias.ndim != 1:
        raise _misfit(name, bias, added)
    _refuse_integers(name, (bias, added))
    plus = partial(bias_plus, settings.scale(change.layer, factor.shape[1]))
    compute = computed_in_blocks(plus, [bias.dtype, added.dtype])
    return computed_tensor(name, compute, (bias, added), scope="elements", framework="numpy")


def _refuse_integers(name: str, inputs: Iterable[LazyTensor]) -> None:
    for lazy in inputs:
        if not lazy.is_floating_point:
            raise DtypeError(
                f"tensor `{name}` cannot be changed by an adapter",
                tensor=name,
                expected="floating-point numbers",
                found=f"{lazy.dtype} in `{lazy.name}`",
            )


def _replaced(name: str, whole: LazyTensor, base: LazyTensors) -> LazyTensor:
    """Return a tensor that the adapter has as a whole, in the base's dtype and framework."""
    if name not in base:
        return whole.renamed(name)
    inputs = (base[name], whole)
    if inputs[0].shape != whole.shape:
        raise _misfit(name, *inputs)
    compute: Callable[..., Numbers] = _second
    if inputs[0].dtype != whole.dtype:
        _refuse_integers(name, inputs)
        compute = computed_in_blocks(_second, [lazy.dtype for lazy in inputs])
    return computed_tensor(name, compute, inputs, scope="elements", framework="numpy")


def _second(_: Numbers, whole: Numbers) -> Numbers:
    return whole


def _is_turned(name: str, weight: LazyTensor, a: LazyTensor, b: LazyTensor, turns: Orientations | None) -> bool:
    """Say whether a weight is (inputs, outputs), as in embeddings and GPT-2; refuse factors that do not fit."""
    if min(a.ndim, b.ndim) >= 2 and a.shape[0] and a.shape[0] == b.shape[1] == prod(b.shape[1:]):
        fits = {False: (b.shape[0], *a.shape[1:]), True: (prod(a.shape[1:]), b.shape[0])}
        found = [is_turned for is_turned, shape in fits.items() if shape == weight.shape]
        if len(found) == 2:
            return turns is None or turns.is_turned(name)
        if found:
            return found[0]
    raise _misfit(name, weight, a, b)


def _misfit(name: str, weight: LazyTensor, *parts: LazyTensor) -> RefusedError:
    return RefusedError(
        f"the adapter does not fit tensor `{name}`",
        tensor=name,
        expected=f"a change of {list(weight.shape)}",
        found=" and ".join(f"`{part.name}` {list(part.shape)}" for part in parts),
        hint="The adapter belongs to another model",
    )


def _turned(lazy: LazyTensor) -> LazyTensor:
    shape = lazy.shape[::-1]
    return computed_tensor(lazy.name, _transposed, (lazy,), scope="tensor", shape=shape, framework="numpy")


def _transposed(array: Numbers) -> Numbers:
    return array.T

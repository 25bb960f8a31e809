"""`assert_loaded`: does a model have the values of a checkpoint?"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

import numpy as np
import torch
from torch import nn

from tensorkeep.arrays import adapter_for, pieces
from tensorkeep.buffers import Buffer
from tensorkeep.digests import new_hasher
from tensorkeep.dtypes import BY_NAME, torch_row
from tensorkeep.encryption import KeyLike
from tensorkeep.errors import NotLoadedError
from tensorkeep.models._load import Fitted, Loadable, Renaming, check_match, fitted, opened
from tensorkeep.models._plan import Target
from tensorkeep.models._ties import tie_error
from tensorkeep.tensors import LazyTensor
from tensorkeep.texts import listed

_PIECE_NBYTES: Final = 2**24
"""Bytes compared at once, of tensors that were cast."""


def assert_loaded(
    model: nn.Module,
    target: Loadable,
    *,
    strict: bool = True,
    key_map: Renaming | None = None,
    strip_prefix: str | None = None,
    add_prefix: str | None = None,
    dequantize: Any = None,
    key: KeyLike | Sequence[KeyLike] | None = None,
) -> None:
    """Raise an error unless a model has the values of a checkpoint, bit for bit.

    Call it after a load by any library: it finds parameters that were initialized again, dropped, or loaded into
    something that is not the model. Tensors with digests are not read: the digest of the parameter's bytes is
    compared. A parameter of another dtype is compared with the saved values cast to it. Tied weights are
    compared once.

    Args:
        model: The model, on any device.
        target: A directory, a shard index, a file, its bytes or a seekable file object; or an open checkpoint, file
            or view, or a dict of name to lazy tensor.
        strict: Whether names that only one side has are an error.
        key_map: Renames tensors of the checkpoint, as `load_into` does.
        strip_prefix: Text to remove from the start of names.
        add_prefix: Text to put before names.
        dequantize: Dtype of the numbers of quantized tensors, as `load_into` takes it.
        key: The key of an encrypted checkpoint; see `tensorkeep.open`.

    Raises:
        NotLoadedError: If values differ, or a parameter has no data (also an AssertionError); it lists the names.
        StateDictMismatchError: If names, shapes or tied weights do not fit; it lists them.
        DtypeError: If a tensor cannot be cast to the model's dtype.
        UnsupportedError: If a parameter cannot be compared (sparse, a wrapper of others, or lazy).
        RefusedError: If renaming gives two tensors one name.
        TensorNotFoundError: If no name has the prefix, or a name in `key_map` is not in the checkpoint.
        SourceMissingError: If there is no such checkpoint, or a shard is missing.
        FormatError: If a shard index or a header is malformed, or a part of a quantized tensor is missing.
        IntegrityError: If the checkpoint is incomplete or damaged.
        EncryptedError: If it is encrypted, and the key is missing or another one.
        TypeError: If `target` is a dict of anything but lazy tensors.
        TransportError: If the bytes cannot be read.
    """
    with opened(target, key=key, dequantize=dequantize) as tensors:
        goal = Target(None, None, None, assign=True)  # also a model without data, which differs
        fit = fitted(model, tensors, goal, key_map=key_map, strip_prefix=strip_prefix, add_prefix=add_prefix)
        check_match(fit.plan.match, model, tensors.path, strict=strict, ignore_mismatched=False)
        if strict and (conflicts := fit.conflicts()):
            raise tie_error(conflicts, model, tensors.path)
        empty = [step.storage.names[0] for step in fit.plan.steps if step.storage.tensor.is_meta]
        wrong = [*empty, *_differing(fit)]
    if wrong:
        found = {"no data (device meta) in": empty, "other values in": wrong[len(empty) :]}
        raise NotLoadedError(
            f"{type(model).__name__} does not have the values of the checkpoint",
            path=fit.path,
            tensor=wrong[0],
            expected="equal values, after the cast to each parameter's dtype",
            found="; ".join(f"{what} {_named(names)}" for what, names in found.items() if names),
            hint="tensorkeep.torch.load_into gives the model the tensors themselves with assign=True"
            if empty
            else "Were they initialized again after loading, or trained? tensorkeep.torch.load_into loads them",
            differing=wrong,
        )


def _named(names: Sequence[str]) -> str:
    return listed(names, describe=lambda name: f"`{name:.200}`")


def _differing(fit: Fitted) -> list[str]:
    """Return the names of parameters with other values."""
    filled = [step for step in fit.plan.steps if not step.storage.tensor.is_meta]
    wrong = [step.storage.names[0] for step in filled if not _has_values(step.storage.tensor.detach(), step.lazy)]
    for module, lazy in fit.plan.extras:
        state: Any = module.get_extra_state()
        if not isinstance(state, torch.Tensor) or not _has_values(state, lazy):
            wrong.append(lazy.name)
    return wrong


def _has_values(live: torch.Tensor, lazy: LazyTensor) -> bool:
    if torch_row(live.dtype) != BY_NAME[lazy.dtype]:
        return _has_cast_values(live, lazy)
    expected = lazy.digest or _digest(lazy.tensor_to_write().buffers())
    return _digest(adapter_for("torch").tensor_to_write(live, lazy.name).buffers()) == expected


def _digest(buffers: Iterable[Buffer]) -> bytes:
    hasher = new_hasher(parallel=True)
    for buffer in buffers:
        hasher.update(buffer)
    return hasher.digest()


def _has_cast_values(live: torch.Tensor, lazy: LazyTensor) -> bool:
    """Compare piece by piece with the saved values, cast as a load casts them; all NaNs are equal."""
    dtype = BY_NAME[lazy.dtype]
    saved = lazy.with_framework("numpy" if dtype.is_packed else "torch")
    for index in pieces(lazy.shape, max(dtype.itemsize, live.element_size(), 4), _PIECE_NBYTES):
        part: Any = saved[index]
        if not isinstance(part, torch.Tensor):  # torch does not compute with packed elements
            part = torch.from_numpy(np.ascontiguousarray(part.astype(np.float32)))
        expected, found = _comparable(part.to(live.dtype)), _comparable(live[index].cpu())
        if not bool(((expected == found) | (expected.isnan() & found.isnan())).all()):
            return False
    return True


def _comparable(tensor: torch.Tensor) -> torch.Tensor:
    """Return numbers that torch can compare: it lacks this for 8 bits, and float32 has all of them."""
    return tensor.float() if tensor.is_floating_point() and tensor.element_size() < 4 else tensor

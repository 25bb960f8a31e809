"""`coverage`: which bytes of a checkpoint go into which parameters of a model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import nn

from tensorkeep.encryption import KeyLike
from tensorkeep.models._coverage import Coverage
from tensorkeep.models._load import Loadable, Renaming, fitted, opened
from tensorkeep.models._plan import Target


def coverage(
    model: nn.Module,
    target: Loadable,
    *,
    key_map: Renaming | None = None,
    strip_prefix: str | None = None,
    add_prefix: str | None = None,
    dequantize: Any = None,
    key: KeyLike | Sequence[KeyLike] | None = None,
) -> Coverage:
    """Say which bytes of a checkpoint go into which parameters of a model, and which into nothing. Nothing is loaded.

        print(tensorkeep.torch.coverage(model, "checkpoint"))
        tensorkeep.torch.coverage(model, "checkpoint").require(used=0.99)

    Args:
        model: The model, also on device meta.
        target: A directory, a shard index, a file, its bytes or a seekable file object; or an open checkpoint, file
            or view, or a dict of name to lazy tensor.
        key_map: Renames tensors of the checkpoint, as `load_into` does.
        strip_prefix: Text to remove from the start of names.
        add_prefix: Text to put before names.
        dequantize: Dtype of the numbers of quantized tensors, as `load_into` takes it.
        key: The key of an encrypted checkpoint; see `tensorkeep.open`.

    Returns:
        What becomes of each tensor, and which parameters get nothing.

    Raises:
        DtypeError: If a tensor cannot be cast to the model's dtype.
        UnsupportedError: If a parameter cannot be written to (sparse, a wrapper of others, or lazy).
        RefusedError: If renaming gives two tensors one name.
        TensorNotFoundError: If no name has the prefix, or a name in `key_map` is not in the checkpoint.
        SourceMissingError: If there is no such checkpoint, or a shard is missing.
        FormatError: If a shard index or a header is malformed, or a part of a quantized tensor is missing.
        IntegrityError: If the checkpoint is incomplete or damaged.
        EncryptedError: If it is encrypted, and the key is missing or another one.
        TypeError: If `target` is a dict of anything but lazy tensors.
        TransportError: If the headers cannot be read.
    """
    with opened(target, key=key, dequantize=dequantize) as tensors:
        goal = Target(None, None, None, assign=_is_on_meta(model))
        return fitted(
            model, tensors, goal, key_map=key_map, strip_prefix=strip_prefix, add_prefix=add_prefix
        ).coverage()


def _is_on_meta(model: nn.Module) -> bool:
    return any(tensor.is_meta for tensor in model.state_dict().values() if hasattr(tensor, "is_meta"))

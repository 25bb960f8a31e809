"""Weights that are one tensor under several names, where transformers does not know of it.

What the configuration of a model ties, `from_pretrained` ties again: such weights are saved once. A tie that was made
in the run is another matter. transformers leaves one of its names out of the file, and fills it with random numbers
when it is loaded. So these are saved under each name, which any reader understands, and noted as one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec
import torch
from transformers import PreTrainedModel

from tensorkeep.errors import FormatError

_KEY: Final = "tensorkeep.ties"
"""Of metadata: name in the model to the name whose tensor it is, as JSON."""


class TiesOf(msgspec.Struct, frozen=True):
    """Names of a model's weights that are one tensor, each to the name whose tensor it is.

    Attributes:
        declared: Those that `from_pretrained` ties by itself.
        others: All others.
    """

    declared: dict[str, str] = {}
    others: dict[str, str] = {}


def ties_of(model: Any) -> TiesOf:
    """Find the ties of a model."""
    if not isinstance(model, PreTrainedModel) or getattr(model, "hf_quantizer", None) is not None:
        return TiesOf()
    known = model.get_expanded_tied_weights_keys(all_submodels=True)
    declared: dict[str, str] = {}
    others: dict[str, str] = {}
    for names in _same_tensors(model.state_dict()):
        owner = next((name for name in names if known.get(name) not in names), names[0])
        for name in names:
            if name != owner:
                (declared if known.get(name) in names else others)[name] = owner
    return TiesOf(declared, others)


def _same_tensors(state: Mapping[str, Any]) -> list[list[str]]:
    """Group names of the same tensor, each group in the order of the state dict."""
    groups: dict[tuple[Any, ...], list[str]] = {}
    for name, tensor in state.items():
        if type(tensor) in {torch.Tensor, torch.nn.Parameter} and tensor.device.type != "meta" and tensor.numel():
            where = tensor.device, tensor.data_ptr(), tensor.dtype, tensor.shape, tensor.stride()
            groups.setdefault(where, []).append(name)
    return [names for names in groups.values() if len(names) > 1]


def state_with_ties_apart(model: Any, ties: TiesOf) -> dict[str, Any] | None:
    """Return the state dict of a model in which names that are tied without its knowledge have their own tensors."""
    if not ties.others:
        return None
    return {name: tensor.clone() if name in ties.others else tensor for name, tensor in model.state_dict().items()}


def metadata_of_ties(ties: TiesOf) -> dict[str, str]:
    """Return what files are to say of ties that `from_pretrained` does not make by itself."""
    return {_KEY: msgspec.json.encode(ties.others, order="sorted").decode()} if ties.others else {}


def tie_again(model: torch.nn.Module, metadata: Mapping[str, str] | None) -> None:
    """Make weights of a loaded model one tensor that were one when it was saved.

    Left as they are: names that this model does not have, and weights that are no longer equal or on one device.
    """
    text = (metadata or {}).get(_KEY, "{}")
    try:
        ties = msgspec.json.decode(text, type=dict[str, str])
    except msgspec.MsgspecError as cause:
        raise FormatError(
            "the ties that the metadata of the model speak of are malformed", found=str(cause)
        ) from cause
    parameters = dict(model.named_parameters(remove_duplicate=False))
    for name, owner in ties.items():
        one, other = parameters.get(name), parameters.get(owner)
        if one is None or other is None or one is other or not _are_equal(one, other):
            continue
        module, _, attribute = name.rpartition(".")
        setattr(model.get_submodule(module), attribute, other)


def _are_equal(one: torch.Tensor, other: torch.Tensor) -> bool:
    alike = one.device == other.device and one.dtype == other.dtype and one.shape == other.shape
    return alike and one.device.type != "meta" and torch.equal(one, other)

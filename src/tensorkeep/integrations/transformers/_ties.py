"""Tied weights, including those that the configuration of a model does not declare.

`from_pretrained` ties what the configuration declares, so such weights are saved once. If a tie was made only in the
run, transformers leaves one of its names out of the file, and fills it with random numbers on loading. So these
weights are saved under each name, which any reader understands, and the tie is noted in the metadata.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any, Final

import msgspec
import torch
from transformers import PreTrainedModel

from tensorkeep.errors import FormatError
from tensorkeep.models import equal_loaded, memory_key

_KEY: Final = "tensorkeep.ties"
"""Metadata key: a JSON object of name in the model to the name whose tensor it shares."""


class TiesOf(msgspec.Struct, frozen=True):
    """The tied weights of a model, each name mapped to the name whose tensor it shares.

    Attributes:
        declared: Ties that `from_pretrained` makes by itself.
        others: All other ties.
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
    for names in _tied_names(model.state_dict()):
        owner = next((name for name in names if known.get(name) not in names), names[0])
        for name in names:
            if name != owner:
                (declared if known.get(name) in names else others)[name] = owner
    return TiesOf(declared, others)


def _tied_names(state: Mapping[str, Any]) -> list[list[str]]:
    """Group names of the same tensor, each group in the order of the state dict."""
    groups: dict[Hashable, list[str]] = {}
    for name, tensor in state.items():
        if type(tensor) in {torch.Tensor, torch.nn.Parameter}:
            groups.setdefault(memory_key(tensor), []).append(name)
    return [names for names in groups.values() if len(names) > 1]


def untied_state(model: Any, ties: TiesOf) -> dict[str, Any] | None:
    """Return a model's state dict with copies of undeclared tied weights; None if there are no such ties."""
    if not ties.others:
        return None
    return {name: tensor.clone() if name in ties.others else tensor for name, tensor in model.state_dict().items()}


def metadata_of_ties(ties: TiesOf) -> dict[str, str]:
    """Return the metadata about ties that `from_pretrained` does not make by itself."""
    return {_KEY: msgspec.json.encode(ties.others, order="sorted").decode()} if ties.others else {}


def tie_again(model: torch.nn.Module, metadata: Mapping[str, str] | None) -> None:
    """Tie weights of a loaded model that were tied when it was saved.

    Names that this model lacks are ignored, as are weights that are no longer equal or on the same device.
    """
    text = (metadata or {}).get(_KEY, "{}")
    try:
        ties = msgspec.json.decode(text, type=dict[str, str])
    except msgspec.MsgspecError as cause:
        raise FormatError("the ties in the metadata of the model are malformed", found=str(cause)) from cause
    parameters = dict(model.named_parameters(remove_duplicate=False))
    for name, owner in ties.items():
        parameter, shared = parameters.get(name), parameters.get(owner)
        if parameter is None or shared is None or parameter is shared:
            continue
        if parameter.device == shared.device and not shared.is_meta and equal_loaded(parameter, shared):
            module, _, attribute = name.rpartition(".")
            setattr(model.get_submodule(module), attribute, shared)

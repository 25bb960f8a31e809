"""Names that modules change while they are loaded.

A module may register a hook that receives the state dict before loading, usually to accept names of an older version
(`weight_norm` does). It is run here on tensors without data; where each of them ends up tells what was renamed, and
nothing has to be read.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import nn

from tensorkeep.errors import UnsupportedError

_Tokens = dict[str, torch.Tensor]

_REFUSED = "a hook of the model changes more than names when it is loaded"
_HINT = "Load the tensors with tensorkeep.load, and pass them to the model's own load_state_dict"


def names_after_hooks(model: nn.Module, shapes: Iterable[tuple[str, tuple[int, ...]]]) -> dict[str, str]:
    """Return each name that the modules' hooks give a tensor, and its name in the checkpoint."""
    shapes = list(shapes)
    hooked = [(prefix, module) for prefix, module in model.named_modules(remove_duplicate=False) if _hooks(module)]
    if not hooked:
        return {name: name for name, _ in shapes}
    tokens = {name: torch.empty(shape, device="meta") for name, shape in shapes}
    names = {id(token): name for name, token in tokens.items()}
    for prefix, module in hooked:
        tokens = _run(module, f"{prefix}." if prefix else "", tokens)
    renamed: dict[str, str] = {}
    for name, token in tokens.items():
        if id(token) not in names:
            raise UnsupportedError(_REFUSED, found=f"a hook that computes `{name}` from the data", hint=_HINT)
        renamed[name] = names[id(token)]
    return renamed


def _hooks(module: nn.Module) -> list[Any]:
    return list(module._load_state_dict_pre_hooks.values())


def _run(module: nn.Module, prefix: str, tokens: _Tokens) -> _Tokens:
    own = {name: token for name, token in tokens.items() if name.startswith(prefix)}
    others = {name: token for name, token in tokens.items() if name not in own}
    for hook in _hooks(module):
        try:
            hook(own, prefix, {}, False, [], [], [])
        except Exception as error:
            found = f"a hook that fails on tensors without data: {error}"
            raise UnsupportedError(_REFUSED, found=found, hint=_HINT) from error
    return others | own

"""Experts of a mixture, stacked and split."""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files
from typing import Final

from tensorkeep.errors import RefusedError, TensorNotFoundError, UnsupportedError
from tensorkeep.tensors import LazyTensors, TensorView
from tensorkeep.texts import counted, listed
from tensorkeep.transforms.keymaps import KeyMap

EXPERT_LAYOUTS: Final = ("mixtral", "qwen")
"""Names of experts: `block_sparse_moe.experts.0.w1`, and `mlp.experts.0.gate_proj`, which most models have."""

_is_of_one_expert = re.compile(r"(?:.*\.)?experts\.[0-9]+\..*", re.DOTALL).fullmatch


def stack_experts(tensors: LazyTensors, layout: str | KeyMap | None = None) -> TensorView:
    """Return a view with the experts of each layer stacked, as transformers 5 holds them in memory.

    `mlp.experts.0.gate_proj.weight` and `up_proj` of all experts become `mlp.experts.gate_up_proj`, with the shape
    (experts, gate and up, inputs); `down_proj` becomes `mlp.experts.down_proj`. Bytes are copied as they are.

    Args:
        tensors: An open file, a checkpoint or a view.
        layout: `"qwen"` (also DeepSeek, GLM, OLMoE), `"mixtral"`, or a key map; None infers it from the names.

    Raises:
        TensorNotFoundError: If there are no experts with names of the layout (also a KeyError).
        RefusedError: If an expert of a layer is missing, if its shape differs, or if experts have other tensors, such
            as scales, that the layout does not name. The message lists them.
        UnsupportedError: If there is no such layout.
    """
    key_map = _map_of(layout) if layout is not None else _found(tensors)
    stacked = key_map.apply(tensors)
    left = [name for name in stacked if _is_of_one_expert(name)]
    if left:
        raise RefusedError(
            f"{counted(len(left), 'tensor')} of experts would not be stacked",
            path=tensors.path,
            found=listed((f"`{name}`" for name in left), 10),
            hint="Dequantize scales and blocks first; a key map can name other tensors",
        )
    return stacked


def split_experts(tensors: LazyTensors, layout: str | KeyMap) -> TensorView:
    """Return a view with one tensor for each stacked expert: the reverse of `stack_experts`.

    Args:
        tensors: An open file, a checkpoint or a view.
        layout: The names to give: `"qwen"`, `"mixtral"`, or the key map that stacked them.

    Raises:
        TensorNotFoundError: If there are no stacked experts (also a KeyError).
        RefusedError: If a shape does not fit, or two tensors would get one name.
        UnsupportedError: If there is no such layout.
    """
    split = _map_of(layout).inverse()
    if not split.matches_any(tensors):
        raise TensorNotFoundError(
            "there are no stacked experts with known names",
            path=tensors.path,
            expected=" or ".join(f"`{pattern.text}`" for rule in split.rules for pattern in rule.left),
            hint="A key map can name others; single ones are stacked by `stack_experts`",
        )
    return split.apply(tensors)


def _found(tensors: LazyTensors) -> KeyMap:
    fitting = [key_map for key_map in map(_map_of, EXPERT_LAYOUTS) if key_map.matches_any(tensors)]
    if not fitting:
        raise TensorNotFoundError(
            "there are no experts with known names",
            path=tensors.path,
            expected="names such as `….mlp.experts.0.gate_proj.weight` or `….block_sparse_moe.experts.0.w1.weight`",
            hint="A key map can name others; `split_experts` splits stacked ones",
        )
    return fitting[0]


@cache
def _known(name: str) -> KeyMap:
    return KeyMap.parse(files(__package__).joinpath(f"{name}.toml").read_text("utf-8"))


def _map_of(layout: str | KeyMap) -> KeyMap:
    if isinstance(layout, KeyMap):
        return layout
    if layout not in EXPERT_LAYOUTS:
        expected = f"{' or '.join(EXPERT_LAYOUTS)}, or a key map"
        raise UnsupportedError("there is no such layout of experts", expected=expected, found=repr(layout))
    return _known(layout)

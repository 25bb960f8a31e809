"""`tensorkeep transform stack-experts` and `split-experts`."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

import tensorkeep
from tensorkeep.cli.commands.transforming._transformed import write_transformed
from tensorkeep.cli.inputs import Rewritten, Saving

if TYPE_CHECKING:
    from tensorkeep.transforms import KeyMap

_LAYOUT = "The names of single experts: mixtral, qwen (also DeepSeek, GLM, OLMoE), or a key map (.toml)."


def stack_experts(
    source: Rewritten,
    *,
    layout: Annotated[str | None, typer.Option("--layout", metavar="NAME", help=_LAYOUT)] = None,
    saving: Saving,
) -> None:
    """Stack the experts of each layer, as transformers 5 holds them.

    Bytes are copied as they are; 'split-experts' does the reverse. If an expert is missing, nothing is written.
    """
    stack = partial(tensorkeep.transforms.stack_experts, layout=None if layout is None else _layout_of(layout))
    write_transformed(source, stack, saving)


def split_experts(
    source: Rewritten,
    *,
    layout: Annotated[str, typer.Option("--layout", metavar="NAME", help=_LAYOUT)],
    saving: Saving,
) -> None:
    """Split stacked experts into one tensor per expert."""
    write_transformed(source, partial(tensorkeep.transforms.split_experts, layout=_layout_of(layout)), saving)


def _layout_of(text: str) -> str | KeyMap:
    return tensorkeep.transforms.KeyMap.read(text) if text.endswith(".toml") else text

"""`tensorkeep transform relabel`: quantized tensors under the names of another library."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated, cast

import typer

import tensorkeep
from tensorkeep.cli.commands.transforming._transformed import write_transformed
from tensorkeep.cli.inputs import Rewritten, Saving

if TYPE_CHECKING:
    from tensorkeep.transforms import Nvfp4Layout


def relabel(
    source: Rewritten,
    *,
    to: Annotated[str, typer.Option("--to", metavar="LIBRARY", help="compressed-tensors or modelopt.")],
    saving: Saving,
) -> None:
    """Give a checkpoint in NVFP4 the names and scales of another library.

    Blocks are copied as they are; only the scales of whole tensors and of inputs are replaced by their reciprocals.
    Relabelling back gives the same tensors, bit for bit. config.json is updated to the new layout.
    """
    layout = cast("Nvfp4Layout", to)
    change = partial(tensorkeep.transforms.relabel, to=layout)
    write_transformed(source, change, saving, tensorkeep.transforms.nvfp4_in_config(layout))

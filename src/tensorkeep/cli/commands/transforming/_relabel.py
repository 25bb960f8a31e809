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
    to: Annotated[str, typer.Option("--to", metavar="LIBRARY", help="compressed-tensors, gguf or modelopt.")],
    saving: Saving,
) -> None:
    """Give a checkpoint in NVFP4 the names, scales and blocks of another library.

    Numbers and the scales of blocks stay the same; the scales of whole tensors and of inputs become their
    reciprocals if the other library divides by them. Relabelling back gives the same tensors, bit for bit.
    config.json is updated to the new layout. For llama.cpp, 'export' writes the result of '--to gguf' as a GGUF file.
    """
    layout = cast("Nvfp4Layout", to)
    change = partial(tensorkeep.transforms.relabel, to=layout)
    write_transformed(source, change, saving, tensorkeep.transforms.nvfp4_in_config(layout))

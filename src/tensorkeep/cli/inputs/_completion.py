"""What the Tab key offers beside commands and options. Paths are completed by the shell.

Shells evaluate what is offered to them: zsh runs `$(…)` in it, whatever typer does to prevent that. So a name from a
file is offered only if it has nothing but letters, digits and a few signs, and does not look like an option.
"""

from __future__ import annotations

import re
from contextlib import suppress
from itertools import islice
from typing import Final

import typer

import tensorkeep
from tensorkeep.errors import TensorkeepError
from tensorkeep.transport import is_remote

_HARMLESS: Final = re.compile(r"[A-Za-z0-9_./][A-Za-z0-9_./-]*", re.ASCII)
_MAX_NAMES: Final = 1000
_FLOATS: Final = ("bf16", "f16", "f32", "f64", "f8_e4m3", "f8_e5m2")


def tensor_names(ctx: typer.Context, incomplete: str) -> list[str]:
    """Offer the names of tensors in a local checkpoint that was typed before."""
    given = [ctx.params.get(name) for name in ("path", "source", "a")]
    path = next(filter(None, [*given, *ctx.args]), None)  # after an option without its value, all is in `args`
    names: list[str] = []
    if path is not None and not is_remote(path):
        with suppress(TensorkeepError, OSError), tensorkeep.open(path, variant=ctx.params.get("variant")) as tensors:
            found = (name for name in tensors if name.startswith(incomplete) and _HARMLESS.fullmatch(name))
            names = list(islice(found, _MAX_NAMES))
    return names


def libraries(incomplete: str) -> list[str]:
    """Offer array libraries."""
    return [name for name in tensorkeep.arrays.LIBRARIES if name.startswith(incomplete)]


def export_formats(incomplete: str) -> list[str]:
    """Offer formats of `export`."""
    return [each.key for each in tensorkeep.exporting.FORMATS if each.key.startswith(incomplete)]


def floats(incomplete: str) -> list[str]:
    """Offer dtypes of floating-point numbers."""
    return [name for name in _FLOATS if name.startswith(incomplete)]

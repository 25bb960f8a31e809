"""`tensorkeep diff`: how two checkpoints differ."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Annotated

import typer

import tensorkeep
from tensorkeep.cli.inputs import AsJson, Engine, KeyOptions, Select, TrustedBy, open_any
from tensorkeep.cli.reports import Comparison
from tensorkeep.cli.terminal import progress_bar, show_result
from tensorkeep.errors import UnsupportedError

if TYPE_CHECKING:
    from tensorkeep.encryption import Key
    from tensorkeep.kinds import Opened

_First = Annotated[str, typer.Argument(metavar="A", help="A file, a directory or an index.", show_default=False)]
_Second = Annotated[str, typer.Argument(metavar="B", help="Another one.", show_default=False)]


def diff(
    a: _First,
    b: _Second,
    *,
    values: Annotated[
        bool,
        typer.Option("--values/--no-values", help="Compare elements, or only names, dtypes and shapes."),
    ] = True,
    select: Select = None,
    engine: Engine = None,
    trust: TrustedBy = None,
    as_json: AsJson = False,
    key: KeyOptions,
) -> int:
    """Compare two checkpoints.

    Only differences are shown: tensors that one of them lacks, different dtypes and shapes, and how many elements
    differ and by how much. Elements of different dtypes are compared as numbers; NaN equals NaN. How tensors are
    spread over files does not matter. Tensors with equal digests are not read.

    For whole training states, also numbers, text and other data that differ in type or value, and tensors that share
    memory in only one of them. Patterns match their dotted names too, such as 'optim.*'.

    --engine applies to whichever of the two the library can read, and a key to whichever is encrypted.

    The exit status is 0 if everything is equal, 1 if anything differs, 2 if one of them cannot be read.
    """
    compare = tensorkeep.diff
    with ExitStack() as opened:
        tensors_a, tensors_b = _opened([a, b], engine, trust, key.keys(), opened)
        with progress_bar("comparing") as progress:
            found = compare(tensors_a, tensors_b, only=select or None, values=values, progress=progress)
        show_result(Comparison(a, b, tensors_a, tensors_b, found, values), as_json=as_json)
    return 0 if found.is_equal else 1


def _opened(
    paths: list[str], engine: str | None, trust: str | None, keys: list[Key] | None, stack: ExitStack
) -> list[Opened]:
    """Open two checkpoints: both with the engine, or the one that it reads."""
    found: list[Opened] = []
    refusals: list[UnsupportedError] = []
    for path in paths:
        try:
            found.append(stack.enter_context(open_any(path, keys, trust=trust, engine=engine)))
        except UnsupportedError as error:
            if engine is None or error.found != repr(engine) or refusals:
                raise
            refusals.append(error)
            found.append(stack.enter_context(open_any(path, keys, trust=trust)))
    return found

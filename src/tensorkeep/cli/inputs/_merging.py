"""Arguments and options of the commands that merge models."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

Models = Annotated[
    list[str],
    typer.Argument(metavar="MODEL...", help="Files or directories with the same tensors.", show_default=False),
]

BaseModel = Annotated[
    str, typer.Argument(metavar="BASE", help="The base model, from which training began.", show_default=False)
]

Weights = Annotated[
    str | None,
    typer.Option("--weights", metavar="W,W...", help="A factor for each model, such as 2,1. Default: equal ones."),
]

Scale = Annotated[float, typer.Option("--scale", metavar="X", help="A factor for the merged changes.")]

Integers = Annotated[
    str,
    typer.Option(
        "--integers",
        metavar="WHICH",
        help="Take integers of the first or last model; equal: refuse others.",
    ),
]


def integers_of(text: str) -> Literal["equal", "first", "last"]:
    """Read which integers to take."""
    match text:
        case "equal" | "first" | "last":
            return text
    raise typer.BadParameter(f"expected equal, first or last, found {text!r}", param_hint="'--integers'")


def weights_of(text: str | None) -> list[float] | None:
    """Read factors with commas between them."""
    if text is None:
        return None
    try:
        return [float(word) for word in text.split(",")]
    except ValueError:
        raise typer.BadParameter(f"expected numbers such as 2,1, found {text!r}", param_hint="'--weights'") from None

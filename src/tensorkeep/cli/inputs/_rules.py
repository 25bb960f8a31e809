"""The rules of a store as options."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from tensorkeep.errors import UnsupportedError

Store = Annotated[str, typer.Argument(metavar="ROOT", help="The directory of a store.", show_default=False)]

KeepLast = Annotated[
    str | None, typer.Option("--keep-last", metavar="N", help="How many of the last saved steps to keep, or all.")
]

KeepBest = Annotated[
    str | None, typer.Option("--keep-best", metavar="N", help="How many of the best steps to keep, or all.")
]

KeepEvery = Annotated[
    str | None, typer.Option("--keep-every", metavar="N", help="Keep the multiples of this, or none of them.")
]

Monitor = Annotated[
    str | None, typer.Option("--monitor", metavar="NAME", help="The metric that decides which step is best.")
]

Greatest = Annotated[bool, typer.Option("--max", help="The largest value is best, not the smallest.")]


def rules_of(
    keep_last: str | None = None,
    keep_best: str | None = None,
    keep_every: str | None = None,
    monitor: str | None = None,
    *,
    greatest: bool = False,
) -> dict[str, Any]:
    """Return the arguments of a store for the options that were given."""
    texts = (("keep_last", keep_last, "all"), ("keep_best", keep_best, "all"), ("keep_every", keep_every, "none"))
    rules: dict[str, Any] = {name: _number(name, text, word) for name, text, word in texts if text is not None}
    return rules | ({} if monitor is None else {"monitor": monitor}) | ({"mode": "max"} if greatest else {})


def _number(name: str, text: str, word: str) -> int | None:
    """Read a number, or the word for no limit."""
    if text == word:
        return None
    if text.isascii() and text.isdigit() and len(text) < 20:
        return int(text)
    raise UnsupportedError(f"{name} is invalid", expected=f"a number, or {word}", found=repr(text))

"""`tensorkeep fetch`: all of a remote checkpoint on the disk."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter
from typing import Annotated

import typer

import tensorkeep
from tensorkeep.cli.inputs import AsJson, Variant
from tensorkeep.cli.reports import document_lines
from tensorkeep.cli.terminal import Line, progress_bar, show, show_text, size_text


def fetch(
    url: Annotated[
        str,
        typer.Argument(
            metavar="URL", help="Of a directory, an index or a file: https, s3, gs, az, hf …", show_default=False
        ),
    ],
    destination: Annotated[
        str,
        typer.Argument(
            metavar="DESTINATION",
            help="A directory, made if its parent is there; for the URL of a file also the name of one.",
            show_default=False,
        ),
    ],
    *,
    variant: Variant = None,
    companions: Annotated[
        bool,
        typer.Option("--companions/--no-companions", help="Bring configuration, tokenizer and the like along."),
    ] = True,
    durable: Annotated[
        bool, typer.Option("--durable/--no-durable", help="Wait until the disk has everything (fsync).")
    ] = True,
    as_json: AsJson = False,
) -> None:
    """Download a checkpoint, whole.

    Many ranges come at once. What is stopped, by Ctrl-C or in any other way, goes on when the same command is run
    again. All that comes is checked before it replaces what was there, in one step.

    Credentials come from the environment, as AWS_ACCESS_KEY_ID or HF_TOKEN do, or stand in the URL.
    """
    bring = tensorkeep.fetch  # which brings in what it needs, before the clock starts
    start = perf_counter()
    with progress_bar("fetching") as progress:
        extent = _Extent(progress)
        path = bring(url, destination, variant=variant, companions=companions, durable=durable, progress=extent)
    seconds = perf_counter() - start
    if as_json:
        members = {
            "path": path,
            "nbytes": extent.nbytes,
            "fetched_nbytes": extent.n_came,
            "seconds": round(seconds, 3),
        }
        show_text(document_lines(members))
    else:
        show([_line(path, extent, seconds)])


class _Extent:
    """What is told of progress, and how much there was."""

    def __init__(self, progress: Callable[[int, int], None] | None) -> None:
        self._progress = progress
        self._first: int | None = None
        self.nbytes = 0
        self.n_came = 0

    def __call__(self, done: int, total: int) -> None:
        self._first = done if self._first is None else self._first
        self.nbytes, self.n_came = total, done - self._first
        if self._progress is not None:
            self._progress(done, total)


def _line(path: str, extent: _Extent, seconds: float) -> Line:
    speed = size_text(int(extent.n_came / max(seconds, 1e-9)))
    here = extent.nbytes - extent.n_came
    came = f"{size_text(extent.n_came)} in {seconds:.2f} s ({speed}/s)" if extent.n_came else "nothing new"
    already = f", {size_text(here)} were here" if here else ""
    return [("fetched ", ""), (path, "title"), (f": {came}{already}", "")]

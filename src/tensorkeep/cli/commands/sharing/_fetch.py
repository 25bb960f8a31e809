"""`tensorkeep fetch`: download a whole checkpoint."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, NamedTuple

import typer

import tensorkeep
from tensorkeep.cli.inputs import AsJson, Force, TrustedBy, Variant
from tensorkeep.cli.terminal import Line, Writing, progress_bar, replaced_text, show_result, size_text, speed_text


def fetch(
    url: Annotated[
        str,
        typer.Argument(
            metavar="URL",
            help="The URL of a directory, an index or a file: https, s3, gs, az, hf …",
            show_default=False,
        ),
    ],
    destination: Annotated[
        str,
        typer.Argument(
            metavar="DESTINATION",
            help="A directory, created if its parent exists, or a file name if URL is a file.",
            show_default=False,
        ),
    ],
    *,
    variant: Variant = None,
    companions: Annotated[
        bool,
        typer.Option("--companions/--no-companions", help="Download configuration, tokenizer and the like too."),
    ] = True,
    durable: Annotated[
        bool, typer.Option("--durable/--no-durable", help="Wait until everything is on the disk (fsync).")
    ] = True,
    force: Force = False,
    trust: TrustedBy = None,
    as_json: AsJson = False,
) -> None:
    """Download a whole checkpoint.

    Many ranges are downloaded at once. A download that was stopped, by Ctrl-C or otherwise, resumes when the same
    command is run again. Everything is verified before it replaces an older version of the same checkpoint, in one
    step. If another checkpoint is there, the command asks first.

    With --trust, everything that is fetched must be as it was signed. Signatures are fetched with the checkpoint.

    Credentials come from the environment, such as AWS_ACCESS_KEY_ID or HF_TOKEN, or from the URL.
    """
    download = tensorkeep.fetch  # import everything before the clock starts

    def attempt(overwrite: bool) -> tuple[str, _Extent]:
        with progress_bar("fetching") as progress:
            extent = _Extent(progress)
            path = download(
                url,
                destination,
                variant=variant,
                companions=companions,
                durable=durable,
                overwrite=overwrite,
                trust=trust,
                progress=extent,
            )
            return path, extent

    advice = "; the same command resumes the download"
    writing = Writing(destination, force=force, asks=not as_json, advice=advice)
    path, extent = writing.run(attempt)
    fetched = _Fetched(path, extent.nbytes, extent.fetched_nbytes, writing.seconds, writing.replaced)
    show_result(fetched, as_json=as_json)


class _Extent:
    """Counts the bytes while it passes progress on."""

    def __init__(self, progress: Callable[[int, int], None] | None) -> None:
        self._progress = progress
        self._first: int | None = None
        self.nbytes = 0
        self.fetched_nbytes = 0

    def __call__(self, done: int, total: int) -> None:
        self._first = done if self._first is None else self._first
        self.nbytes, self.fetched_nbytes = total, done - self._first
        if self._progress is not None:
            self._progress(done, total)


class _Fetched(NamedTuple):
    """A finished download."""

    path: str
    nbytes: int
    fetched_nbytes: int
    seconds: float
    replaced: tuple[str, ...]

    def lines(self, _width: int | None) -> list[Line]:
        present = self.nbytes - self.fetched_nbytes
        speed = speed_text(self.fetched_nbytes, self.seconds)
        new = f"{size_text(self.fetched_nbytes)} in {speed}" if self.fetched_nbytes else "nothing new"
        already = f", {size_text(present)} already present" if present else ""
        return [[("fetched ", ""), (self.path, "title"), (f": {new}{already}{replaced_text(self.replaced)}", "")]]

    def members(self) -> dict[str, object]:
        return {
            "path": self.path,
            "nbytes": self.nbytes,
            "fetched_nbytes": self.fetched_nbytes,
            "seconds": round(self.seconds, 3),
            "replaced": self.replaced,
        }

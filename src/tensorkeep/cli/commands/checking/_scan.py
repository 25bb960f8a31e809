"""`tensorkeep scan`: what the pickles in files would run, without running it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

import typer

import tensorkeep
from tensorkeep.cli.inputs import AsJson, AsSarif, require_one_form
from tensorkeep.cli.reports import scan_lines
from tensorkeep.cli.terminal import progress_bar, show, show_text

if TYPE_CHECKING:
    from tensorkeep.scanner import Verdict


_Paths = Annotated[
    list[str], typer.Argument(metavar="PATH...", help="Files, or directories of files.", show_default=False)
]
_EXIT_CODES: Final[dict[Verdict, int]] = {"clean": 0, "unknown": 0, "dangerous": 1, "refused": 1, "unreadable": 2}


def scan(
    paths: _Paths,
    *,
    as_json: AsJson = False,
    sarif: AsSarif = False,
    strict: Annotated[
        bool, typer.Option("--strict", help="Treat names that are not known to be data as dangerous.")
    ] = False,
    trust: Annotated[
        str | None,
        typer.Option(
            "--trust", metavar="KEY", help="The policy (.toml) or public key that says which formats are allowed."
        ),
    ] = None,
) -> int:
    """List what files would run elsewhere.

    Scans files of torch.save in all their forms, bare pickles, NumPy arrays, models of Keras, TensorFlow and ONNX,
    HDF5 and GGUF files, and zip and tar archives with their members. Lists what would be imported, called or built,
    where it is, and what is known about it. Nothing is imported or called.

    The exit status is 0 if nothing known to be dangerous is found, 1 if something is, 2 if a file cannot be read or
    there is no file. With --strict it is also 1 if a name is not known to be data, and with --trust if the policy
    does not allow a format or pickles.
    """
    require_one_form(as_json=as_json, sarif=sarif)
    with progress_bar("scanning") as progress:
        report = tensorkeep.scan(*paths, progress=progress, trust=trust)
    if as_json or sarif:
        show_text((report.to_sarif() if sarif else report.to_json()).splitlines())
    else:
        show(scan_lines(report))
    is_refused = strict and any(file.verdict == "unknown" for file in report.files)
    return 1 if is_refused else _EXIT_CODES[report.verdict]

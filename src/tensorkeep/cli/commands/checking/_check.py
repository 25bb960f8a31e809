"""`tensorkeep check`: do these weights make sense?"""

from __future__ import annotations

from typing import Annotated

import typer

import tensorkeep
from tensorkeep.cli.inputs import (
    AsJson,
    AsSarif,
    Engine,
    KeyOptions,
    Target,
    TrustedBy,
    Variant,
    require_one_form,
    share_of,
)
from tensorkeep.cli.reports import Checked
from tensorkeep.cli.terminal import progress_bar, show_result, show_text
from tensorkeep.errors import UnsupportedError


def check(
    path: Target,
    *,
    against: Annotated[
        str | None,
        typer.Option(
            "--against",
            metavar="WHAT",
            help="Another checkpoint, a config.json, or MODULE:CLASS, which is imported.",
        ),
    ] = None,
    data: Annotated[
        bool, typer.Option("--data", help="Read all elements too: NaNs, infinities, zeros, and scales.")
    ] = False,
    min_fit: Annotated[
        str | None,
        typer.Option(
            "--min-fit",
            metavar="SHARE",
            help="With --against: accept missing and extra tensors if this share fits, such as 99%.",
        ),
    ] = None,
    variant: Variant = None,
    engine: Engine = None,
    trust: TrustedBy = None,
    as_json: AsJson = False,
    sarif: AsSarif = False,
    key: KeyOptions,
) -> int:
    """Say whether tensors make sense together, and for a model.

    Only headers are read: names, shapes and dtypes of layers are compared with each other, and with the config.json
    beside them. Finds layers that are missing or incomplete, wrapper names, tensors that are stored twice, shapes
    that contradict each other or the config, tied weights that differ, and files that no index lists. Whether bytes
    are damaged is for 'tensorkeep verify'.

    With --against, every name and shape is compared. A config.json is given to transformers, which builds the model
    without data; code that a config names is never run. transformers:CLASS takes the config.json beside PATH.

    The exit status is 0 if nothing is wrong (notes may be shown), 1 if something is, 2 if there is no answer.
    """
    require_one_form(as_json=as_json, sarif=sarif)
    least = None if min_fit is None else share_of(min_fit, "--min-fit")
    if least is not None and against is None:
        raise UnsupportedError("--min-fit needs --against: without a model, nothing says what is missing")
    with progress_bar("checking") as progress:
        report = tensorkeep.check(
            path,
            against=against,
            data=data,
            variant=variant,
            engine=engine,
            progress=progress if data else None,
            trust=trust,
            key=key.keys(),
        )
    checked = Checked(report, least)
    if sarif:
        show_text(report.to_sarif().splitlines())
    else:
        show_result(checked, as_json=as_json)
    return 0 if checked.is_accepted else 1

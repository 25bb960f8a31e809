"""`tensorkeep export`: a checkpoint of any kind to a file of another format, without running anything in it."""

from __future__ import annotations

from functools import partial
from typing import Annotated

import typer

import tensorkeep
from tensorkeep.cli.inputs import (
    AsJson,
    Cast,
    Dequantize,
    Dtypes,
    Engine,
    Force,
    KeyOptions,
    Names,
    Target,
    TrustedBy,
    Variant,
    dtypes_of,
    export_formats,
)
from tensorkeep.cli.reports import Exported
from tensorkeep.cli.terminal import Writing, show_result


def export(
    source: Target,
    target: Annotated[
        str,
        typer.Argument(metavar="TARGET", help="The file to write, such as model.npz.", show_default=False),
    ],
    *,
    to: Annotated[
        str | None,
        typer.Option(
            "--to",
            metavar="FORMAT",
            help="The format, if the suffix of TARGET does not say it.",
            autocompletion=export_formats,
        ),
    ] = None,
    names: Names,
    dequantize: Dequantize = None,
    cast: Cast = None,
    drop_unknown: Annotated[
        bool,
        typer.Option(
            "--drop-unknown", help="Leave out objects that are not known to be data, but keep their tensors."
        ),
    ] = False,
    check: Annotated[
        bool, typer.Option("--check/--no-check", help="Check the source's checksums and read back every tensor.")
    ] = True,
    variant: Variant = None,
    trust: TrustedBy = None,
    engine: Engine = None,
    dtype: Dtypes = None,
    force: Force = False,
    as_json: AsJson = False,
    key: KeyOptions,
) -> None:
    """Write a checkpoint as a file of another format.

    \b
      tensorkeep export model.safetensors model.npz --cast f32
      tensorkeep export checkpoint/ embedding.npy --select embedding.weight

    Nothing in the source is run. Whenever this is stopped, the target is the new file or what it was before.
    Metadata, numbers, text and nesting that the format cannot hold are left out, and the report says so.

    Options apply in this order: --select, --drop, --rename, --strip-prefix, --dequantize, --cast. The first three can
    be repeated.
    """  # noqa: D301 - typer takes it as a mark to keep the lines
    write = partial(
        tensorkeep.export,
        source,
        target,
        to=to,
        **names.arguments(),
        dequantize=dequantize,
        cast=cast,
        variant=variant,
        engine=engine,
        dtypes=dtypes_of(dtype),
        key=key.keys(),
        trust=trust,
        drop_unknown=drop_unknown,
        check=check,
    )
    writing = Writing(target, force=force, asks=not as_json)
    done = writing.run_shown("exporting", write)
    show_result(Exported(done, writing.seconds, writing.replaced), as_json=as_json)

"""`tensorkeep convert`: a checkpoint of any kind to safetensors, without running anything in it."""

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
    EncryptOptions,
    Engine,
    Force,
    KeyMapping,
    KeyOptions,
    Names,
    NewFiles,
    Stochastic,
    TrustedBy,
    Variant,
    dtypes_of,
)
from tensorkeep.cli.reports import Converted
from tensorkeep.cli.terminal import Writing, show_result


def convert(
    sources: Annotated[
        list[str],
        typer.Argument(metavar="SOURCE...", help="Files, indexes or directories of any format.", show_default=False),
    ],
    destination: Annotated[
        str,
        typer.Argument(
            metavar="DESTINATION",
            help="A directory, created if its parent exists, or a file that ends in .safetensors.",
            show_default=False,
        ),
    ],
    *,
    files: NewFiles,
    drop_unknown: Annotated[
        bool,
        typer.Option(
            "--drop-unknown", help="Leave out objects that are not known to be data, but keep their tensors."
        ),
    ] = False,
    names: Names,
    keys: KeyMapping,
    dequantize: Dequantize = None,
    cast: Cast = None,
    stochastic: Stochastic = None,
    share_views: Annotated[
        bool,
        typer.Option("--share-views", help="Store overlapping memory once; only tensorkeep can read such views."),
    ] = False,
    check: Annotated[
        bool, typer.Option("--check/--no-check", help="Check the source's checksums and read back every tensor.")
    ] = True,
    variant: Variant = None,
    trust: TrustedBy = None,
    key: KeyOptions,
    encryption: EncryptOptions,
    engine: Engine = None,
    dtype: Dtypes = None,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Convert a checkpoint to safetensors.

    Nothing in the source is run: pickles are read as data, and the bytes of tensors are copied. Numbers, text and
    nesting are kept, unless tensors are chosen with --select or --drop. Whenever this is stopped, the destination
    holds the new checkpoint or what it held before.

    Options apply in this order: --select, --drop, --rename or --keys, --strip-prefix, --dequantize, --cast. The
    first three can be repeated.
    """
    write = partial(
        tensorkeep.convert,
        sources,
        destination,
        drop_unknown=drop_unknown,
        **keys.renaming(names),
        dequantize=dequantize,
        cast=cast,
        seed=stochastic,
        variant=variant,
        engine=engine,
        dtypes=dtypes_of(dtype),
        **files.arguments(),
        key=key.keys(),
        trust=trust,
        encrypt=encryption.encryption(),
        share_views=share_views,
        check=check,
    )
    writing = Writing(destination, force=force, asks=not as_json)
    conversion = writing.run_shown("converting", write)
    show_result(Converted(conversion, writing.seconds, writing.replaced), as_json=as_json)

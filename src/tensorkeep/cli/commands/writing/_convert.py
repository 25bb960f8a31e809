"""`tensorkeep convert`: a checkpoint of any kind to safetensors, without running anything in it."""

from __future__ import annotations

from functools import partial
from typing import Annotated

import typer

import tensorkeep
from tensorkeep.cli.inputs import (
    Align,
    AsJson,
    Cast,
    Dequantize,
    Drop,
    Engine,
    Force,
    MaxShardSize,
    NewVariant,
    Order,
    Rename,
    Select,
    Sha256,
    StripPrefix,
    Variant,
    pairs_of,
    size_of,
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
    max_shard_size: MaxShardSize = "5GB",
    drop_unknown: Annotated[
        bool,
        typer.Option(
            "--drop-unknown", help="Leave out objects that are not known to be data, but keep their tensors."
        ),
    ] = False,
    select: Select = None,
    drop: Drop = None,
    rename: Rename = None,
    strip_prefix: StripPrefix = None,
    dequantize: Dequantize = None,
    cast: Cast = None,
    share_views: Annotated[
        bool,
        typer.Option("--share-views", help="Store overlapping memory once; only tensorkeep can read such views."),
    ] = False,
    sha256: Sha256 = False,
    align: Align = 8,
    order: Order = None,
    check: Annotated[
        bool, typer.Option("--check/--no-check", help="Check the source's checksums and read back every tensor.")
    ] = True,
    variant: Variant = None,
    engine: Engine = None,
    output_variant: NewVariant = None,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Convert a checkpoint to safetensors.

    Nothing in the source is run: pickles are read as data, and the bytes of tensors are copied. Numbers, text and
    nesting are kept, unless tensors are chosen with --select or --drop. Whenever this is stopped, the destination
    holds the new checkpoint or what it held before.

    Options apply in this order: --select, --drop, --rename, --strip-prefix, --dequantize, --cast. The first three can
    be repeated.
    """
    renaming = pairs_of(rename, "--rename", "OLD=NEW")
    write = partial(
        tensorkeep.convert,
        sources,
        destination,
        max_shard_size=size_of(max_shard_size),
        drop_unknown=drop_unknown,
        select=select,
        drop=drop,
        rename=renaming or None,
        strip_prefix=strip_prefix,
        dequantize=dequantize,
        cast=cast,
        variant=variant,
        engine=engine,
        output_variant=output_variant,
        share_views=share_views,
        sha256=sha256,
        align=align,
        order=order,
        check=check,
    )
    writing = Writing(destination, force=force, asks=not as_json)
    conversion = writing.run_shown("converting", write)
    show_result(Converted(conversion, writing.seconds, writing.replaced), as_json=as_json)

"""`tensorkeep reshard`: rewrite a checkpoint in other shards, with digests."""

from __future__ import annotations

from functools import partial

import tensorkeep
from tensorkeep.cli.inputs import (
    Align,
    AsJson,
    Balance,
    Cast,
    Destination,
    Drop,
    Force,
    MaxShardSize,
    NewVariant,
    Order,
    Rename,
    Rewritten,
    Select,
    Sha256,
    SplitLarge,
    StripPrefix,
    Variant,
    pairs_of,
    size_of,
)
from tensorkeep.cli.reports import read_written
from tensorkeep.cli.terminal import Writing, show_result


def reshard(
    source: Rewritten,
    directory: Destination,
    *,
    max_shard_size: MaxShardSize = "5GB",
    balance: Balance = False,
    split_large: SplitLarge = False,
    select: Select = None,
    drop: Drop = None,
    rename: Rename = None,
    strip_prefix: StripPrefix = None,
    cast: Cast = None,
    sha256: Sha256 = False,
    align: Align = 8,
    order: Order = None,
    variant: Variant = None,
    output_variant: NewVariant = None,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Rewrite a checkpoint in other shards.

    The new checkpoint has digests, and on request fewer tensors, other names or another dtype. Tensors are copied
    from file to file and are never all in memory. Whenever this is stopped, the directory holds the new checkpoint
    or what it held before; it may be the source's own directory.

    Options apply in this order: --select, --drop, --rename, --strip-prefix, --cast. The first three can be repeated.
    """
    renaming = pairs_of(rename, "--rename", "OLD=NEW")
    write = partial(
        tensorkeep.reshard,
        source,
        directory,
        max_shard_size=size_of(max_shard_size),
        balance=balance,
        split_large=split_large,
        variant=variant,
        output_variant=output_variant,
        select=select,
        drop=drop,
        rename=renaming or None,
        strip_prefix=strip_prefix,
        cast=cast,
        sha256=sha256,
        align=align,
        order=order,
    )
    writing = Writing(directory, force=force, asks=not as_json)
    writing.run_shown("writing", write)
    written = read_written(directory, output_variant, writing.seconds, writing.replaced)
    show_result(written, as_json=as_json)

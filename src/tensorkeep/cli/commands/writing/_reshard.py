"""`tensorkeep reshard`: rewrite a checkpoint in other shards, with digests."""

from __future__ import annotations

from functools import partial

import tensorkeep
from tensorkeep.cli.inputs import (
    AsJson,
    Balance,
    Cast,
    Destination,
    Force,
    Names,
    NewFiles,
    Rewritten,
    SplitLarge,
    Stochastic,
    Variant,
)
from tensorkeep.cli.reports import read_written
from tensorkeep.cli.terminal import Writing, show_result


def reshard(
    source: Rewritten,
    directory: Destination,
    *,
    files: NewFiles,
    balance: Balance = False,
    split_large: SplitLarge = False,
    names: Names,
    cast: Cast = None,
    stochastic: Stochastic = None,
    variant: Variant = None,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Rewrite a checkpoint in other shards.

    The new checkpoint has digests, and on request fewer tensors, other names or another dtype. Tensors are copied
    from file to file and are never all in memory. Whenever this is stopped, the directory holds the new checkpoint
    or what it held before; it may be the source's own directory.

    Options apply in this order: --select, --drop, --rename, --strip-prefix, --cast. The first three can be repeated.
    """
    write = partial(
        tensorkeep.reshard,
        source,
        directory,
        balance=balance,
        split_large=split_large,
        variant=variant,
        **files.arguments(),
        **names.arguments(),
        cast=cast,
        seed=stochastic,
    )
    writing = Writing(directory, force=force, asks=not as_json)
    writing.run_shown("writing", write)
    written = read_written(directory, files.output_variant, writing.seconds, writing.replaced)
    show_result(written, as_json=as_json)

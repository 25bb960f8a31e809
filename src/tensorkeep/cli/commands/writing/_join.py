"""`tensorkeep join`: the tensors of several checkpoints in one."""

from __future__ import annotations

from functools import partial
from typing import Annotated

import typer

import tensorkeep
from tensorkeep.cli.inputs import (
    AsJson,
    Balance,
    Cast,
    Chosen,
    Destination,
    EncryptOptions,
    Force,
    KeyMapping,
    KeyOptions,
    NewFiles,
    SplitLarge,
    Stochastic,
    TrustedBy,
    Variant,
    keys_of,
)
from tensorkeep.cli.reports import read_written
from tensorkeep.cli.terminal import Writing, show_result


def join(
    sources: Annotated[
        list[str], typer.Argument(metavar="SOURCE...", help="Files, directories or indexes.", show_default=False)
    ],
    directory: Destination,
    *,
    files: NewFiles,
    balance: Balance = False,
    split_large: SplitLarge = False,
    chosen: Chosen,
    keys: KeyMapping,
    cast: Cast = None,
    stochastic: Stochastic = None,
    variant: Variant = None,
    trust: TrustedBy = None,
    key: KeyOptions,
    encryption: EncryptOptions,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Put the tensors of several checkpoints into one.

    Nothing is computed; 'tensorkeep merge' does that. No two sources may have a tensor with the same name. Tensors
    are copied from file to file and are never all in memory. Whenever this is stopped, the directory holds the new
    checkpoint or what it held before.
    """
    _refuse_one(sources)
    encrypt = encryption.encryption()
    write = partial(
        tensorkeep.join,
        sources,
        directory,
        balance=balance,
        split_large=split_large,
        variant=variant,
        **files.arguments(),
        key=key.keys(),
        trust=trust,
        encrypt=encrypt,
        select=chosen.select,
        drop=chosen.drop,
        change=keys.change(),
        cast=cast,
        seed=stochastic,
    )
    writing = Writing(directory, force=force, asks=not as_json)
    writing.run_shown("writing", write)
    written = read_written(directory, files.output_variant, writing.seconds, writing.replaced, keys_of(encrypt))
    show_result(written, as_json=as_json)


def _refuse_one(sources: list[str]) -> None:
    """Refuse a single source: without the directory, the last source would be written to."""
    if len(sources) < 2:
        raise typer.BadParameter("at least two sources, and then the directory to write to", param_hint="'SOURCE...'")

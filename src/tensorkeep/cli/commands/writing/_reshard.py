"""`tensorkeep reshard`: rewrite a checkpoint in other shards, with digests."""

from __future__ import annotations

import os
from functools import partial
from typing import Annotated, Any

import typer

import tensorkeep
from tensorkeep.cli.inputs import (
    AsJson,
    Balance,
    Cast,
    Destination,
    EncryptOptions,
    Force,
    KeyMapping,
    KeyOptions,
    Names,
    NewFiles,
    Rewritten,
    SplitLarge,
    Stochastic,
    TrustedBy,
    Variant,
    keys_of,
    pairs_of,
    size_of,
)
from tensorkeep.cli.reports import DividedForRanks, read_written
from tensorkeep.cli.terminal import Writing, show_result
from tensorkeep.formats.safetensors import ALIGNMENT_NBYTES


def reshard(
    source: Rewritten,
    directory: Destination,
    *,
    files: NewFiles,
    balance: Balance = False,
    split_large: SplitLarge = False,
    names: Names,
    keys: KeyMapping,
    cast: Cast = None,
    stochastic: Stochastic = None,
    variant: Variant = None,
    trust: TrustedBy = None,
    key: KeyOptions,
    encryption: EncryptOptions,
    force: Force = False,
    tp: Annotated[
        int | None,
        typer.Option(
            "--tp", metavar="N", min=1, help="Divide it for tensor parallelism: a directory for each of N ranks."
        ),
    ] = None,
    plan: Annotated[
        list[str] | None,
        typer.Option(
            "--plan",
            metavar="PATTERN=STYLE",
            help="With --tp: how tensors are divided, such as '*.q_proj=colwise'; or a TOML file. Without it, the"
            " model's own plan counts.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Rewrite a checkpoint in other shards.

    The new checkpoint has digests, and on request fewer tensors, other names or another dtype. Tensors are copied
    from file to file and are never all in memory. Whenever this is stopped, the directory holds the new checkpoint
    or what it held before. It may be the source's own directory; with --select or --drop, this needs --force.

    Options apply in this order: --select, --drop, --rename, --strip-prefix, --keys, --cast. The first three can be
    repeated.

    With --tp, each rank of a server gets a directory of its own, and reads nothing else. --plan can be repeated; the
    first pattern that matches counts. Its styles are colwise, rowwise, packed_colwise, embedding_rowwise, experts,
    replicate and model. Resharding the new directory joins the whole tensors again.
    """
    if tp is not None or plan:
        others = (balance, split_large, keys.keys, cast, stochastic, files.sha256, files.order, files.output_variant)
        if any((*others, trust, encryption.encrypt, *names.arguments().values())) or files.align != ALIGNMENT_NBYTES:
            raise typer.BadParameter(
                "with --tp, only --max-shard-size, --variant and keys of the other options apply", param_hint="'--tp'"
            )
        settings = {"max_shard_size": size_of(files.max_shard_size), "variant": variant, "key": key.keys()}
        _reshard_for_ranks(source, directory, tp, plan, settings, force=force, as_json=as_json)
        return
    encrypt = encryption.encryption()
    write = partial(
        tensorkeep.reshard,
        source,
        directory,
        balance=balance,
        split_large=split_large,
        variant=variant,
        **files.arguments(),
        key=key.keys(),
        trust=trust,
        encrypt=encrypt,
        **names.arguments(),
        change=keys.change(),
        cast=cast,
        seed=stochastic,
    )
    writing = Writing(directory, force=force, asks=not as_json)
    writing.run_shown("writing", write)
    written = read_written(directory, files.output_variant, writing.seconds, writing.replaced, keys_of(encrypt))
    show_result(written, as_json=as_json)


def _reshard_for_ranks(
    source: str,
    directory: str,
    n_ranks: int | None,
    plan: list[str] | None,
    settings: dict[str, Any],
    *,
    force: bool,
    as_json: bool,
) -> None:
    if n_ranks is None:
        raise typer.BadParameter("--plan is for --tp", param_hint="'--plan'")
    write = partial(
        tensorkeep.reshard_for_ranks,
        source,
        directory,
        n_ranks,
        plan=_plan_of(plan),
        **settings,
    )
    writing = Writing(directory, force=force, asks=not as_json)
    done = writing.run_shown("writing", write)
    show_result(DividedForRanks(directory, done, writing.seconds), as_json=as_json)


def _plan_of(texts: list[str] | None) -> dict[str, str] | str | None:
    if texts and len(texts) == 1 and "=" not in texts[0]:
        if texts[0] == "model":
            return None
        if not os.path.exists(texts[0]):
            message = f"expected PATTERN=STYLE, or the path of a TOML file, found {texts[0]!r}"
            raise typer.BadParameter(message, param_hint="'--plan'")
        return texts[0]
    return pairs_of(texts, "--plan", "PATTERN=STYLE") or None

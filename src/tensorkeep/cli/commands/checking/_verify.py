"""`tensorkeep verify`: check every byte of a checkpoint against its digests."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter
from typing import TYPE_CHECKING, Annotated, Final

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
    tensor_names,
)
from tensorkeep.cli.reports import Status, Verdict
from tensorkeep.cli.terminal import progress_bar, show_result, show_text
from tensorkeep.errors import FormatError, IntegrityError, SourceMissingError

if TYPE_CHECKING:
    from tensorkeep.encryption import Key

_EXIT_CODES: Final[dict[Status, int]] = {"whole": 0, "damaged": 1, "unverifiable": 2}


def verify(
    path: Target,
    *,
    patterns: Annotated[
        list[str] | None,
        typer.Option(
            "--name", metavar="GLOB", help="Only tensors whose full names match.", autocompletion=tensor_names
        ),
    ] = None,
    sample: Annotated[
        str | None,
        typer.Option("--sample", metavar="SHARE", help="Only a random share of the bytes, such as 10%."),
    ] = None,
    quick: Annotated[
        bool,
        typer.Option("--quick", help="Read no data: compare the SHA-256 in the index with the Hub's and Git LFS's."),
    ] = False,
    as_json: AsJson = False,
    sarif: AsSarif = False,
    variant: Variant = None,
    engine: Engine = None,
    trust: TrustedBy = None,
    key: KeyOptions,
) -> int:
    """Check every byte of a checkpoint.

    Bytes are compared with the digests or checksums that were saved with them; many libraries save none. The index
    and headers are always checked completely: whether all shards exist, have the right size and belong to one save.
    Without options, every tensor is checked, and every shard with a recorded SHA-256. Files without digests are
    compared with the SHA-256 that the Hub records for them, or huggingface_hub for downloads.

    With --trust, a trusted signature must cover every file, each file must be as it was signed, and the policy must
    allow the format, and pickles if there are any.

    The exit status is 0 if everything is whole, 1 if anything is damaged, 2 if there is no answer: nothing is there,
    it is not a checkpoint or cannot be read, or it has no digests.

    Encrypted checkpoints are checked as they are stored; with the key, their tensors are checked too.
    """
    require_one_form(as_json=as_json, sarif=sarif)
    keys = key.keys()
    share = None if sample is None else share_of(sample, "--sample")
    names = _chosen(path, patterns, variant, engine, keys) if patterns else None
    with progress_bar("verifying") as progress:
        verdict = _verdict(path, names, share, variant, engine, trust, keys, progress, quick=quick)
    if sarif:
        show_text(verdict.verification.to_sarif().splitlines())
    else:
        show_result(verdict, as_json=as_json)
    return _EXIT_CODES[verdict.status]


def _chosen(
    path: str, patterns: list[str], variant: str | None, engine: str | None, keys: list[Key] | None
) -> list[str]:
    """Return the names that patterns stand for; none where damage keeps the checkpoint from being opened."""
    try:
        with tensorkeep.open(path, variant=variant, engine=engine, key=keys) as tensors:
            tensors.require_names()
            chosen = tensors.select(*patterns)
            return [piece for name in chosen for piece in tensors.splits.get(name, (name,))]
    except (FormatError, IntegrityError, SourceMissingError):
        return []  # what is wrong comes out again, and whole, when it is verified


def _verdict(
    path: str,
    names: list[str] | None,
    share: float | None,
    variant: str | None,
    engine: str | None,
    trust: str | None,
    keys: list[Key] | None,
    progress: Callable[[int, int], None] | None,
    *,
    quick: bool,
) -> Verdict:
    verify = tensorkeep.verify  # which brings in what it needs, before the clock starts
    start = perf_counter()
    verification = verify(
        path,
        names=names,
        sample=share,
        variant=variant,
        engine=engine,
        trust=trust,
        quick=quick,
        progress=progress,
        key=keys,
    )
    seconds = perf_counter() - start
    has_digests = verification.is_damaged or not verification.n_unprotected
    is_finished = has_digests or not tensorkeep.checkpoint.needs_conversion(path, variant)
    return Verdict(verification, None if names is None else len(names), seconds, is_finished, quick)

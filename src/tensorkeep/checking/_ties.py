"""Tensors that are equal, or should be: tied weights, copies under several names."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import prod
from typing import Final

from tensorkeep.checking._comparison import AreEqual
from tensorkeep.checking._findings import CheckFinding, finding_about
from tensorkeep.checking._names import WRAPPERS, Headers, half_with, mixed_prefixes, unwrapped, wrapper_in
from tensorkeep.checking._settings import Settings, embedding_and_head
from tensorkeep.checkpoint import have_equal_bytes
from tensorkeep.kinds import Opened
from tensorkeep.tensors import LazyTensor
from tensorkeep.texts import counted

_LEAST: Final = 2**15
"""Elements from which equal tensors are worth a note: small ones are equal when training begins."""


def equality_of(tensors: Mapping[str, LazyTensor], *, reads: bool) -> AreEqual:
    """Return a function that compares two tensors by their place and digests, and by their bytes if it may read."""

    def are_equal(first: str, second: str) -> bool | None:
        a, b = tensors[first], tensors[second]
        if (a.dtype, a.shape) != (b.dtype, b.shape):
            return False if a.shape != b.shape else None
        if a.span is not None and a.source is b.source and a.span == b.span:
            return True
        if a.digest is not None and b.digest is not None:
            return a.digest == b.digest
        return have_equal_bytes(a, b, lambda _: None) if reads else None

    return are_equal


def examine_tie(headers: Headers, settings: Settings, are_equal: AreEqual) -> Iterator[CheckFinding]:
    """Compare input and output embeddings with what the config says about them."""
    names = embedding_and_head(headers)
    if names is None or settings.is_tied is None:
        return
    equal = are_equal(*names)
    if settings.is_tied and equal is False:
        yield finding_about(
            "tie-broken",
            "error",
            "config.json says that the output layer is the embedding, but both are here and differ",
            names,
            expected="equal tensors, or one of them",
            found="two with different values",
            advice="Set tie_word_embeddings to false in config.json, or leave out the one that was not trained",
        )
    elif not settings.is_tied and equal:
        yield finding_about(
            "tie-undeclared",
            "note",
            "the output layer equals the embedding, though config.json does not tie them",
            names,
            advice="Set tie_word_embeddings in config.json if the model was trained so",
        )


def examine_copies(tensors: Mapping[str, LazyTensor], headers: Headers) -> Iterator[CheckFinding]:
    """Find large tensors with equal digests that are stored more than once."""
    if not _may_have_digests(tensors):
        return
    large = [name for name, header in headers.items() if len(header.shape) > 1 and prod(header.shape) >= _LEAST]
    by_digest: dict[bytes, list[str]] = {}
    spans = set()
    for lazy in map(tensors.__getitem__, large):
        digest = lazy.digest
        place = (id(lazy.source), lazy.span) if digest is not None else None
        if digest is not None and place not in spans:
            spans.add(place)
            by_digest.setdefault(digest, []).append(lazy.name)
    copies = [name for names in by_digest.values() for name in names[1:]]
    if copies:
        yield finding_about(
            "copies",
            "note",
            f"{counted(len(copies), 'tensor')} with the same bytes as others that are stored too",
            copies,
            advice="Tied weights need to be stored once; layers that should differ may have been written twice",
        )


def examine_prefixes(headers: Headers) -> Iterator[CheckFinding]:
    """Find models in which some layers have a prefix in their names and others lack it."""
    for prefix in mixed_prefixes(headers):
        names = half_with(prefix, headers)
        if names:
            yield finding_about(
                "names-mixed",
                "error",
                f"some layers have names with `{prefix}` in front, and others without it: no program finds both",
                names,
                expected=f"`{prefix}` in front of all names, or of none",
                found=f"`{names[0]:.200}` beside names without it",
                advice=f"tensorkeep reshard PATH DIRECTORY --strip-prefix {prefix}",
            )


def _may_have_digests(tensors: Mapping[str, LazyTensor]) -> bool:
    """Say whether any tensor may have a digest, without making lazy tensors of files that have none."""
    files = tensors.describe().files if isinstance(tensors, Opened) else ()
    return not files or any(file.form != "safetensors" or file.digests != "none" for file in files)


def examine_wrappers(headers: Headers, *, is_for_others: bool) -> Iterator[CheckFinding]:
    """Find names with parts that wrappers added, and tensors that are there with and without them."""
    wrapped: dict[str, list[str]] = {}
    for name in headers:
        if (wrapper := wrapper_in(name)) is not None:
            wrapped.setdefault(wrapper, []).append(name)
    for wrapper, names in wrapped.items():
        twice = [name for name in names if unwrapped(name) in headers]
        if twice:
            yield finding_about(
                "duplicate",
                "error",
                f"tensors are stored twice: with `{wrapper}` in the name, and without it",
                twice,
                expected=f"`{unwrapped(twice[0]):.200}` or `{twice[0]:.200}`",
                found="both",
                advice="Leave out those that are older: tensorkeep reshard --drop",
            )
        elif wrapper != "module" or len(names) == len(headers):
            yield finding_about(
                "wrapper-names",
                "warning" if is_for_others else "note",
                f"names have `{wrapper}` in them, which {WRAPPERS[wrapper]} adds: other programs do not expect it",
                names,
                expected=f"`{unwrapped(names[0]):.200}`",
                found=f"`{names[0]:.200}`",
                advice=f"tensorkeep reshard PATH DIRECTORY --strip-prefix {wrapper}."
                if all(name.startswith(f"{wrapper}.") for name in names)
                else "Save the model without the wrapper",
            )

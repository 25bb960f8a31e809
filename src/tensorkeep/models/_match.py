"""The names and shapes of a model compared with those of a checkpoint. Pure."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from itertools import islice
from typing import Final, NamedTuple, TypeVar

import msgspec

from tensorkeep.errors import StateDictMismatchError
from tensorkeep.texts import listed

Shape = tuple[int, ...]
_Item = TypeVar("_Item")

_N_TRIED: Final = 5
"""Names with which a prefix is looked for, and endings tried for each."""

_N_COMPARED: Final = 300
"""Names searched for one similar to a missing name; each takes `difflib` up to a millisecond."""


class ShapeMismatch(NamedTuple):
    """A tensor whose shapes in the model and in the checkpoint differ.

    Attributes:
        name: Its name in the model.
        in_model: Its shape in the model.
        in_checkpoint: Its shape in the checkpoint.
    """

    name: str
    in_model: Shape
    in_checkpoint: Shape


class Wanted(msgspec.Struct, frozen=True):
    """A tensor that a model needs.

    Attributes:
        names: One, or several if weights are tied.
        shape: None if any shape will do.
        is_optional: Whether a checkpoint may lack it.
    """

    names: tuple[str, ...]
    shape: Shape | None
    is_optional: bool = False


class Match(msgspec.Struct, frozen=True):
    """How a checkpoint fits a model.

    Attributes:
        sources: For each wanted tensor its name in the checkpoint, or None if none fits.
        missing: Names that only the model has.
        unexpected: Names that only the checkpoint has.
        mismatched: Tensors whose shapes differ.
    """

    sources: tuple[str | None, ...]
    missing: tuple[str, ...]
    unexpected: tuple[str, ...]
    mismatched: tuple[ShapeMismatch, ...]


def match_tensors(
    wanted: Sequence[Wanted],
    available: Mapping[str, Shape],
    noted: Mapping[str, str],
    covered: Container[str] = (),
) -> Match:
    """Find the tensor of a checkpoint for each tensor of a model.

    One name of a tied tensor is enough. If the checkpoint has several, the last is taken, since with torch the last
    one written wins. `noted` maps names that were left out when the file was saved to the names kept in their place;
    names in `covered` are filled through another tensor.
    """
    sources: list[str | None] = []
    missing: list[str] = []
    mismatched: list[ShapeMismatch] = []
    for tensor in wanted:
        present = [name for name in tensor.names if name in available]
        if tensor.shape is not None:
            mismatched += [
                ShapeMismatch(name, tensor.shape, available[name])
                for name in present
                if available[name] != tensor.shape
            ]
        kept = [noted[name] for name in tensor.names if name in noted and name not in covered]
        fitting = [name for name in present or kept if name in available and tensor.shape in {None, available[name]}]
        sources.append(fitting[-1] if fitting else None)
        if not present and not fitting and not tensor.is_optional:
            missing += [name for name in tensor.names if name not in covered]
    used = {name for tensor in wanted for name in tensor.names} | set(sources)
    unexpected = tuple(name for name in available if name not in used)
    return Match(tuple(sources), tuple(missing), unexpected, tuple(mismatched))


def mismatch_error(
    match: Match,
    model: str,
    path: str | None = None,
    *,
    part: str = "the checkpoint",
    lossy: Sequence[str] = (),
    hint: str | None = None,
) -> StateDictMismatchError:
    """Return the error that says how a checkpoint, or a part of it, differs from a model."""
    facts = [
        _fact("missing", match.missing, lambda name: _quoted(name) + _suggestion(name, match.unexpected)),
        _fact("unexpected", match.unexpected, _quoted),
        _fact(
            "of another shape",
            match.mismatched,
            lambda item: f"{_quoted(item[0])} {list(item[1])} in the model, {list(item[2])} in the checkpoint",
        ),
        _fact("that would lose values", lossy, str),
    ]
    return StateDictMismatchError(
        f"{part} does not fit {model}: " + "; ".join(filter(None, facts)),
        path=path,
        hint=hint or _advice(match),
        missing=match.missing,
        unexpected=match.unexpected,
        mismatched=match.mismatched,
    )


def _fact(kind: str, items: Sequence[_Item], describe: Callable[[_Item], str]) -> str:
    if not items:
        return ""
    return f"{len(items):,} {kind}: {listed(items, describe=describe)}"


def _quoted(name: str) -> str:
    return f"`{name:.200}`"


def _suggestion(name: str, others: Iterable[str]) -> str:
    alike = islice((other for other in others if abs(len(other) - len(name)) <= 3), _N_COMPARED)
    near = difflib.get_close_matches(name, alike, n=1, cutoff=0.8)
    return f" (did you mean {_quoted(near[0])}?)" if near else ""


def _advice(match: Match) -> str | None:
    """Suggest the prefix that makes the names equal, or the arguments that load what fits."""
    if not match.missing or not match.unexpected:
        names, shapes = match.missing or match.unexpected, match.mismatched
        advice = ["strict=False loads only names that both have"] if names else []
        advice += ["ignore_mismatched=True keeps the model's own values where shapes differ"] if shapes else []
        return "; ".join(advice) or None
    for argument, longer, shorter in (
        ("strip_prefix", match.unexpected, match.missing),
        ("add_prefix", match.missing, match.unexpected),
    ):
        prefix = _prefix(longer, shorter)
        if prefix is not None:
            return f"Names fit with {argument}={prefix!r}"
    return None


def _prefix(longer: Sequence[str], shorter: Sequence[str]) -> str | None:
    """Return the prefix that turns most of the shorter names into longer ones."""
    available = set(longer)
    for name in shorter[:_N_TRIED]:
        endings = (candidate for candidate in longer if candidate.endswith("." + name))
        for candidate in islice(endings, _N_TRIED):
            prefix = candidate.removesuffix(name)
            if 2 * sum(prefix + other in available for other in shorter) > min(len(longer), len(shorter)):
                return prefix
    return None

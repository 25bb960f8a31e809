"""Names and shapes of a model held against those of a checkpoint. Pure."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from itertools import islice
from typing import Final, NamedTuple, TypeVar

import msgspec

from tensorkeep.errors import StateDictMismatchError
from tensorkeep.phrases import listed

Shape = tuple[int, ...]
_Item = TypeVar("_Item")

_N_TRIED: Final = 5
"""Names of each kind that a message lists; the error's fields have all."""

_N_ALIKE: Final = 300
"""Names that are looked at for one that is like another."""


class ShapeMismatch(NamedTuple):
    """A tensor that has one shape in the model and another in the checkpoint.

    Attributes:
        name: Its name in the model.
        in_model: Elements along each dimension.
        in_checkpoint: The same, in the checkpoint.
    """

    name: str
    in_model: Shape
    in_checkpoint: Shape


class Wanted(msgspec.Struct, frozen=True):
    """A tensor of a model, under all names that it has there.

    Attributes:
        names: One, or several where weights are tied.
        shape: Elements along each dimension; None where any will do.
        is_optional: Whether a checkpoint may do without.
    """

    names: tuple[str, ...]
    shape: Shape | None
    is_optional: bool = False


class Match(msgspec.Struct, frozen=True):
    """What a checkpoint has for a model.

    Attributes:
        sources: For each wanted tensor its name in the checkpoint, None where there is none that fits.
        missing: Names that only the model has.
        unexpected: Names that only the checkpoint has.
        mismatched: Tensors of another shape.
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
    """Find for each tensor of a model the one of a checkpoint that goes there.

    A tied tensor is there if one of its names is. Of several that are there the last is taken, as the last one
    written would win.
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


def mismatch_error(match: Match, model: str, path: str) -> StateDictMismatchError:
    """Say how a checkpoint differs from a model."""
    facts = [
        _fact("missing", match.missing, lambda name: _quoted(name) + _meant(name, match.unexpected)),
        _fact("unexpected", match.unexpected, _quoted),
        _fact(
            "of another shape",
            match.mismatched,
            lambda it: f"{_quoted(it.name)} {list(it.in_model)} in the model, {list(it.in_checkpoint)} in the file",
        ),
    ]
    return StateDictMismatchError(
        f"the checkpoint does not fit {model}: " + "; ".join(filter(None, facts)),
        path=path,
        hint=_advice(match),
        missing=match.missing,
        unexpected=match.unexpected,
        mismatched=match.mismatched,
    )


def _fact(kind: str, items: Sequence[_Item], say: Callable[[_Item], str]) -> str:
    if not items:
        return ""
    return f"{len(items):,} {kind}: {listed(map(say, items))}"


def _quoted(name: str) -> str:
    return f"`{name:.200}`"


def _meant(name: str, others: Iterable[str]) -> str:
    alike = islice((other for other in others if abs(len(other) - len(name)) <= 3), _N_ALIKE)
    near = difflib.get_close_matches(name, alike, n=1, cutoff=0.8)
    return f" (did you mean {_quoted(near[0])}?)" if near else ""


def _advice(match: Match) -> str | None:
    """Say what would make the names the same, where that is a prefix, or how to take what fits."""
    if not match.missing or not match.unexpected:
        ways = (
            ["strict=False leaves names out that only one of the two has"]
            if match.missing or match.unexpected
            else []
        )
        ways += ["ignore_mismatched=True keeps the model's own values for other shapes"] if match.mismatched else []
        return "; ".join(ways) or None
    for argument, longer, shorter in (
        ("strip_prefix", match.unexpected, match.missing),
        ("add_prefix", match.missing, match.unexpected),
    ):
        prefix = _prefix(longer, shorter)
        if prefix is not None:
            return f"Names fit with {argument}={prefix!r}"
    return None


def _prefix(longer: Sequence[str], shorter: Sequence[str]) -> str | None:
    """Return a text that makes longer names of most of the shorter ones."""
    there = set(longer)
    for name in shorter[:_N_TRIED]:
        endings = (candidate for candidate in longer if candidate.endswith("." + name))
        for candidate in islice(endings, _N_TRIED):
            prefix = candidate.removesuffix(name)
            if 2 * sum(prefix + other in there for other in shorter) > min(len(longer), len(shorter)):
                return prefix
    return None

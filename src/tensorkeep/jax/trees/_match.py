"""A template and what was saved, leaf by leaf; everything that does not fit is one error."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import Any, Final, NoReturn

import msgspec

from tensorkeep.arrays import EncodedObject
from tensorkeep.checkpoint import materialize
from tensorkeep.errors import StateDictMismatchError
from tensorkeep.jax.trees._branches import Branches
from tensorkeep.jax.trees._capture import check_depth
from tensorkeep.jax.trees._fit import fits, form_of, words_for_leaf, words_for_saved
from tensorkeep.jax.trees._libraries import in_own_libraries
from tensorkeep.jax.trees._placements import Placement, placement_of, sharding_within, shardings_below
from tensorkeep.jax.trees._saved import MISSING, Saved
from tensorkeep.state import joined, text_of_key
from tensorkeep.texts import listed

_N_LISTED: Final = 20
"""Names in a message."""

_ROOT: Final = "the tree"

_MAX_UNEXPECTED: Final = 10_000
"""Names that are collected of what no template has."""

_Make = Callable[[list[Any]], Any]


class Leaf(msgspec.Struct, frozen=True):
    """A leaf of a template, and what was saved for it.

    Attributes:
        path: The keys that lead to it, joined by dots.
        template: The leaf of the template.
        saved: A `LazyTensor`, an array, or any other value.
        placement: The sharding or device that it is to have; None for jax's default.
    """

    path: str
    template: Any
    saved: Any
    placement: Placement


class Matched(msgspec.Struct, frozen=True):
    """A template whose leaves all fit.

    Attributes:
        leaves: In the order of the template.
        make: Makes the tree of one value for each leaf.
    """

    leaves: list[Leaf]
    make: _Make


def match(like: Any, saved: Saved, *, shardings: Any, strict: bool, path: str) -> Matched:
    """Find what was saved for each leaf of a template, and refuse what does not fit; no tensor is read.

    `shardings` is one placement for all leaves, or a tree of them that may end early; None takes the template's.
    """
    walk = _Walk()
    make = walk.branch(like, saved, shardings, "", 0)
    unclaimed = saved.unclaimed({leaf.path for leaf in walk.leaves})
    unexpected = [*walk.unexpected, *islice(unclaimed, _MAX_UNEXPECTED)] if strict else []
    leaves = _decoded(walk.leaves)
    unfit = [leaf for leaf in leaves if not fits(leaf.template, leaf.saved)]
    if walk.missing or unexpected or unfit:
        _refuse(walk.missing, unexpected, unfit, path)
    return Matched(leaves, make)


class _Walk:
    """One walk through a template."""

    def __init__(self) -> None:
        self.leaves: list[Leaf] = []
        self.missing: list[str] = []
        self.unexpected: list[str] = []
        self._branches = Branches()

    def branch(self, like: Any, saved: Saved, shardings: Any, path: str, depth: int) -> _Make:
        """Match a value of the template with a place; return what makes it of the values of all leaves."""
        branch = self._branches.of(like)
        if branch is None:
            return self._leaf(like, saved, shardings, path)
        check_depth(depth, path)
        if branch.form == "wrapper":
            places, paths = [_within(saved)], [path]
            below = [sharding_within(shardings, self._branches)]
        else:
            texts = [text_of_key(key) for key in branch.keys]
            self._note_others(saved, texts)
            places, paths = saved.children(texts), [joined(path, text) for text in texts]
            below = shardings_below(shardings, self._branches, texts, path)
        makers = []
        for child, place, child_path, sharding in zip(branch.children, places, paths, below, strict=True):
            makers.append(self.branch(child, place, sharding, child_path, depth + 1))
        return lambda values: branch.make([make(values) for make in makers])

    def _leaf(self, like: Any, saved: Saved, shardings: Any, path: str) -> _Make:
        if like is None:
            self._note_others(saved, [])
            return lambda _: None
        place = len(self.leaves)
        value = saved.value()
        if value is MISSING or value is None:
            self.missing.append(path)
        self.leaves.append(Leaf(path, like, value, placement_of(like, shardings, path)))
        return lambda values: values[place]

    def _note_others(self, saved: Saved, texts: list[str]) -> None:
        self.unexpected.extend(islice(saved.others(texts), _MAX_UNEXPECTED - len(self.unexpected)))


def _within(saved: Saved) -> Saved:
    """Return the place of what a variable holds: its own, or its `value` in files of orbax."""
    inner = saved.children(["value"])[0]
    return saved if inner.value() is MISSING or any(saved.others(["value"])) else inner


def _decoded(leaves: list[Leaf]) -> list[Leaf]:
    """Read the objects among the leaves, such as random keys and NumPy's numbers: they have no form before."""
    objects = {place: leaf.saved for place, leaf in enumerate(leaves) if isinstance(leaf.saved, EncodedObject)}
    if not objects:
        return leaves
    decoded = dict(zip(objects, materialize(in_own_libraries(list(objects.values()))), strict=True))
    return [_with_saved(leaf, decoded[place]) if place in decoded else leaf for place, leaf in enumerate(leaves)]


def _with_saved(leaf: Leaf, saved: Any) -> Leaf:
    template = saved if leaf.template is leaf.saved else leaf.template
    return msgspec.structs.replace(leaf, saved=saved, template=template)


def _refuse(missing: list[str], unexpected: list[str], unfit: list[Leaf], path: str) -> NoReturn:
    unfit = [leaf for leaf in unfit if leaf.saved is not MISSING and leaf.saved is not None]
    texts = [f"{name or _ROOT} is missing" for name in missing]
    texts += [f"{name} is only in the file" for name in unexpected]
    texts += [
        f"{leaf.path or _ROOT} is {words_for_saved(leaf.saved)}, not {words_for_leaf(leaf.template)}"
        for leaf in unfit
    ]
    raise StateDictMismatchError(
        "what was saved does not fit the tree",
        path=path,
        found=listed(texts, _N_LISTED, "; "),
        hint="Nothing was changed; without like=, it loads as it was saved",
        missing=missing,
        unexpected=unexpected,
        mismatched=[(leaf.path, _shape(leaf.template), _shape(leaf.saved)) for leaf in unfit],
    )


def _shape(leaf: Any) -> tuple[int, ...]:
    form = form_of(leaf)
    return () if form is None else form[1]

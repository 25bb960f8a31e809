"""The index of a feed: which steps there are, in order, and how to get from one to the next. Pure.

{"feed":1,"steps":[{"step":100,"digest":"<64 digits>","anchor":"anchor-100"},
{"step":110,"digest":"<64 digits>","patch":"110.patch.safetensors","nbytes":1048576}]}
"""

from __future__ import annotations

from itertools import pairwise
from typing import Annotated, Final

import msgspec

from tensorkeep.errors import FormatError, UnsupportedError
from tensorkeep.layout import checked_step
from tensorkeep.limits import MAX_I64
from tensorkeep.paths import is_plain_name

INDEX_NAME: Final = "feed.json"
_VERSION: Final = 1

_Count = Annotated[int, msgspec.Meta(ge=0, le=MAX_I64)]


class FeedStep(msgspec.Struct, frozen=True, omit_defaults=True):
    """One step.

    Attributes:
        step: Its number.
        digest: BLAKE3 of what its tensors are, as in patches.
        anchor: The directory with the whole checkpoint, beside the index; None without one.
        patch: The file that makes it of the step before; None without one.
        nbytes: Bytes of that file.
    """

    step: _Count
    digest: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]
    anchor: str | None = None
    patch: str | None = None
    nbytes: _Count = 0


class FeedIndex(msgspec.Struct, frozen=True):
    """All steps that followers can get.

    Attributes:
        feed: Version of this text.
        steps: Ascending; the first one has an anchor.
        pending: Names of what is being published or removed; it may be there, whole or in part.
    """

    feed: int = _VERSION
    steps: tuple[FeedStep, ...] = ()
    pending: tuple[str, ...] = ()

    def after(self, step: int | None) -> FeedStep | None:
        """Return what a follower at a step needs next: a patch, or the newest anchor if it has missed too much.

        An index that ends before that step, such as one from a stale cache, has nothing for it.
        """
        numbers = [each.step for each in self.steps]
        if step in numbers:
            later = self.steps[numbers.index(step) + 1 :]
            if all(each.patch for each in later):
                return msgspec.structs.replace(later[0], anchor=None) if later else None
        newest = next((each for each in reversed(self.steps) if each.anchor), None)
        if newest is None or (step is not None and newest.step <= step):
            return None
        return msgspec.structs.replace(newest, patch=None)

    def pruned(self, n_anchors: int) -> FeedIndex:
        """Return the index from the first of the last anchors on."""
        anchored = [place for place, each in enumerate(self.steps) if each.anchor]
        first = anchored[-n_anchors:][0]
        start = msgspec.structs.replace(self.steps[first], patch=None, nbytes=0)
        return FeedIndex(steps=(start, *self.steps[first + 1 :]))

    def names(self) -> set[str]:
        """Return the names beside the index."""
        return {*self.pending, *(name for each in self.steps for name in (each.anchor, each.patch) if name)}


def check_step(step: int) -> int:
    """Return the number of a step as an int, after checking it: an index with another cannot be read."""
    return checked_step(step, MAX_I64)


def anchor_name(step: int, token: str) -> str:
    """Return the name of a step's checkpoint; the token is empty, or tells publishers apart."""
    return f"anchor-{step}{token and '-'}{token}"


def patch_name(step: int, token: str) -> str:
    """Return the name of the patch that makes a step."""
    return f"{step}{token and '-'}{token}.patch.safetensors"


class _Version(msgspec.Struct, frozen=True):
    feed: int


def parse_feed(text: bytes, path: str) -> FeedIndex:
    """Read the index of a feed."""
    try:
        version = msgspec.json.decode(text, type=_Version).feed
        if version == _VERSION:
            index = msgspec.json.decode(text, type=FeedIndex)
            _check(index, path)
            return index
    except (ValueError, RecursionError, msgspec.MsgspecError) as error:
        if isinstance(error, FormatError):
            raise
        raise FormatError("cannot read the index of the feed", path=path, found=str(error)) from None
    raise UnsupportedError(
        "the feed has a later version", path=path, expected=f"version {_VERSION}", found=f"version {version}"
    )


def _check(index: FeedIndex, path: str) -> None:
    fault = next((name for name in index.names() if not is_plain_name(name)), None)
    if fault is not None:
        raise FormatError("the feed names a file elsewhere", path=path, found=repr(fault))
    if index.steps and index.steps[0].anchor is None:
        raise FormatError("the feed does not begin with an anchor", path=path)
    if any(first.step >= second.step for first, second in pairwise(index.steps)):
        raise FormatError("the steps of the feed are not in order", path=path)

"""Where an orbax checkpoint is: a directory, or one of the steps in it; and the items that were saved together."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from typing import Final

import msgspec

from tensorkeep.errors import FormatError, IntegrityError, SourceMissingError, UnsupportedError
from tensorkeep.formats.orbax import Step, parse_step
from tensorkeep.kinds.base import Place
from tensorkeep.kinds.orbax._directory import JSON, MANIFEST, STEP, TREE, names_in, read_file
from tensorkeep.limits import MAX_HEADER_NBYTES
from tensorkeep.paths import is_plain_name
from tensorkeep.texts import listed
from tensorkeep.transport import exists, is_remote, join, list_names, split

COMMITTED: Final = "commit_success.txt"
_UNFINISHED: Final = ".orbax-checkpoint-tmp"
_LEGACY: Final = "checkpoint"

_SIGNS: Final = frozenset({TREE, MANIFEST, STEP})
_NOT_ITEMS: Final = frozenset({"descriptor", "metrics", "array_metadatas", "d"})
_MAX_DEPTH: Final = 4
_MAX_STEPS_TRIED: Final = 3
_MAX_ITEMS_TRIED: Final = 20
_match_step = re.compile(r"(?:.*_)?([0-9]{1,18})").fullmatch


class Item(msgspec.Struct, frozen=True):
    """One thing that was saved: a tree of arrays, or a JSON value.

    Attributes:
        path: Names of the directories that lead to it, which begin the names of its tensors.
        directory: Its directory.
        names: What is in the directory.
    """

    path: tuple[str, ...]
    directory: str
    names: frozenset[str]

    @property
    def is_tree(self) -> bool:
        """Whether it is a tree of arrays."""
        return not self.names.isdisjoint({TREE, MANIFEST, _LEGACY})


class OrbaxLocation(msgspec.Struct, frozen=True):
    """A recognized directory.

    Attributes:
        path: The directory.
        steps: Names of the steps in it, oldest first; empty if it is a checkpoint itself.
        wanted: The step that the caller named.
    """

    path: str
    steps: tuple[str, ...] = ()
    wanted: str | None = None

    def directory(self) -> str:
        """Return the directory of the checkpoint: this one, or a step in it."""
        if not self.steps:
            return self.path
        finished = [name for name in self.steps if _UNFINISHED not in name]
        if self.wanted == "latest" and finished:
            return join(self.path, finished[-1])
        chosen = [name for name in self.steps if self.wanted is None or name == self.wanted]
        if not chosen:
            raise SourceMissingError(
                "there is no such step", path=self.path, expected=listed(self.steps), found=repr(self.wanted)
            )
        if len(chosen) > 1:
            raise UnsupportedError(
                "there are several steps",
                path=self.path,
                found=listed(self.steps),
                hint=f"Open one of them, such as {join(self.path, finished[-1] if finished else chosen[-1])},"
                ' or choose with variant="latest" (--variant latest)',
            )
        return join(self.path, chosen[0])


def find_orbax(place: Place) -> OrbaxLocation | None:
    """Recognize a checkpoint, or a directory of steps, by names alone; or the manifest of a database of arrays."""
    if place.path is None:
        return None
    if not place.is_directory:
        directory, name = split(place.path)
        return OrbaxLocation(directory) if name == MANIFEST else None
    if place.listing is None:  # a server that lists nothing
        is_one = place.path.endswith("/") and exists(join(place.path, STEP))
        return OrbaxLocation(place.path) if is_one else None
    if _is_checkpoint(place.path, place.names):
        return OrbaxLocation(place.path)
    steps = sorted(filter(_number_of, place.names), key=lambda name: (_number_of(name), name))
    newest = (join(place.path, name) for name in steps[-_MAX_STEPS_TRIED:])
    if any(_is_checkpoint(step, names_in(step)) for step in newest):
        return OrbaxLocation(place.path, tuple(steps), place.variant)
    return None


def _number_of(name: str) -> int:
    """Return one more than the number of a step, or 0 for another name."""
    match = _match_step(name.partition(_UNFINISHED)[0])
    return int(match[1]) + 1 if match else 0


def _is_checkpoint(path: str, names: Iterable[str]) -> bool:
    names = set(names)
    if names & _SIGNS:
        return True
    if is_remote(path):  # each look would be a request
        return False
    signs = {".zarray"} if _LEGACY in names else {TREE, MANIFEST}
    inner = [name for name in sorted(names) if "." not in name][:_MAX_ITEMS_TRIED]
    return any(not signs.isdisjoint(names_in(join(path, name))) for name in inner)


def read_step(directory: str) -> Step:
    """Read what a checkpoint says of itself, and refuse one that was never finished; nothing is ever removed."""
    names = names_in(directory)
    try:
        step = parse_step(read_file(join(directory, STEP), MAX_HEADER_NBYTES)) if STEP in names else Step()
    except FormatError as error:
        raise error.with_fields(path=join(directory, STEP)) from None
    unfinished = [name for name in (split(directory.rstrip("/"))[1], *names) if _UNFINISHED in name]
    if unfinished or (step.is_unfinished and COMMITTED not in names):
        raise IntegrityError(
            "the checkpoint is unfinished: the process that saved it ended first, or is still saving",
            path=directory,
            expected=f"a commit time in {STEP}, or {COMMITTED}",
            found=unfinished[0] if unfinished else "neither",
            hint="Open an earlier step. Nothing was removed",
        )
    return step


def items_of(directory: str, step: Step) -> list[Item]:
    """Find the items of a checkpoint; a single one named `default` has no name."""
    is_listed = not is_remote(directory) or list_names(directory) is not None
    handlers = () if is_listed or not isinstance(step.item_handlers, dict) else step.item_handlers
    named = frozenset(filter(is_plain_name, handlers)) - _NOT_ITEMS
    found = list(_items(directory, (), named))
    if not found:
        raise FormatError("there is no tree of arrays in the checkpoint", path=directory, expected=TREE)
    missing = named - {item.path[0] for item in found if item.path}
    if missing and found[0].path:
        raise UnsupportedError(
            "the server does not list what is in items of the checkpoint",
            path=directory,
            found=listed(sorted(missing)),
            hint="Open one of the others by its own URL, such as " + join(found[0].directory, MANIFEST),
        )
    if [item.path for item in found] == [("default",)]:
        return [msgspec.structs.replace(found[0], path=())]
    return found


def _items(directory: str, path: tuple[str, ...], named: frozenset[str] = frozenset()) -> Iterable[Item]:
    """Yield the items below a directory, also those that are only known by name."""
    names = frozenset(names_in(directory))
    item = Item(path, directory, names)
    if item.is_tree or (path and JSON in names):
        yield item
    elif path and path[0] in named and exists(join(directory, JSON)):  # where nothing is listed
        yield Item(path, directory, frozenset({JSON}))
    elif len(path) < _MAX_DEPTH:
        for name in sorted((names | named) - _NOT_ITEMS if not path else names - _NOT_ITEMS):
            inner = join(directory, name)
            if not name.startswith(".") and _may_be_directory(inner, name):
                yield from _items(inner, (*path, name), named)


def _may_be_directory(path: str, name: str) -> bool:
    """Say whether a path is a directory; on a server, whether it may be one."""
    if is_remote(path):
        return "." not in name and not name.startswith("_")
    return os.path.isdir(path)

"""The groups and datasets of a file by their names, and what its links lead to. Pure.

Names are paths from the root group, as h5py shows them: `layers/dense/vars/0`. A group is entered once, by the first
of its names that is found level by level, so that links may form cycles. A soft link to a dataset is another name of
it. Nothing outside the file is followed.
"""

from __future__ import annotations

from collections import deque
from typing import Final, TypeVar

import msgspec

from tensorkeep.errors import FormatError, LimitError, TensorkeepError, UnsupportedError
from tensorkeep.formats._contents import WithoutElements
from tensorkeep.formats.hdf5._unknown import OTHER_READERS, UnknownObject
from tensorkeep.formats.hdf5.structures import (
    DATATYPE,
    LAYOUT,
    Dialect,
    Link,
    ObjectHeader,
    Parsing,
    holds_links,
    read_links,
    read_object,
    together,
)
from tensorkeep.limits import MAX_NAMES_LENGTH

ROOT: Final = "/"
"""The name of the root group."""

_MAX_SOFT_LINKS: Final = 16
"""Soft links on the way to one object, as in HDF5."""

_MAX_STEPS: Final = 2_000_000
"""Parts of the paths of all soft links."""


class Tree(msgspec.Struct, frozen=True):
    """What is in a file, in the order in which groups list it.

    Attributes:
        groups: Name to header of each group, the root first.
        datasets: Name to header of each dataset; two names of one object have the same.
        unknowns: Name to what else a link leads to.
    """

    groups: dict[str, ObjectHeader]
    datasets: dict[str, ObjectHeader]
    unknowns: dict[str, UnknownObject | WithoutElements]


_T = TypeVar("_T")
_Object = ObjectHeader | UnknownObject


class _Walk:
    """A walk through a file, level by level."""

    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect
        self._objects: dict[int, _Object] = {}
        self._names_length = 0
        self.group_at: dict[int, str] = {}
        self.links: dict[str, list[Link]] = {}

    def object_of(self, link: Link) -> _Object | None:
        return None if link.address is None else self._objects[link.address]

    def run(self, root: int) -> Parsing[None]:
        level = [(ROOT, root)]
        while level:
            new = {address: name for name, address in reversed(level) if address not in self._objects}
            found = yield from together(
                _tried(name, read_object(self._dialect, address)) for address, name in new.items()
            )
            self._objects |= zip(new, found, strict=True)
            groups: dict[str, ObjectHeader] = {}
            for name, address in level:
                header = self._objects[address]
                if isinstance(header, ObjectHeader) and holds_links(header) and address not in self.group_at:
                    self.group_at[address] = name
                    groups[name] = header
            listed = yield from together(
                _tried(name, read_links(self._dialect, header)) for name, header in groups.items()
            )
            level = []
            for name, links in zip(groups, listed, strict=True):
                if isinstance(links, UnknownObject):
                    self._objects[groups[name].address] = links
                    del self.group_at[groups[name].address]
                    continue
                self.links[name] = links
                level += [(self._named(name, link), link.address) for link in links if link.address is not None]

    def _named(self, group: str, link: Link) -> str:
        name = join(group, link.name)
        self._names_length += len(name)
        if self._names_length > MAX_NAMES_LENGTH:
            raise LimitError(
                "the names of the datasets are too long together", expected=f"at most {MAX_NAMES_LENGTH:,} characters"
            )
        return name


def _tried(name: str, parsing: Parsing[_T]) -> Parsing[_T | UnknownObject]:
    """Read something of an object: if this version does not support it, it is unknown; errors name the object."""
    try:
        return (yield from parsing)
    except UnsupportedError as error:
        found = f": {error.found}" if error.found else ""
        return UnknownObject(f"{error.message}{found}", OTHER_READERS, "what HDF5 would do for it is not known")
    except TensorkeepError as error:
        raise error.with_fields(tensor=name) from None


def join(group: str, name: str) -> str:
    """Return the name of something in a group."""
    return name if group == ROOT else f"{group}/{name}"


def read_tree(dialect: Dialect, root: int) -> Parsing[Tree]:
    """Read the headers of all objects that links lead to."""
    walk = _Walk(dialect)
    yield from walk.run(root)
    if walk.group_at.get(root) != ROOT:
        raise FormatError("the root of the file is no group", hint="It may be damaged")
    return _in_order(walk, Link(ROOT, address=root))


def _in_order(walk: _Walk, root: Link) -> Tree:
    """List what a walk has found, each group right before what is in it."""
    tree = Tree({}, {}, {})
    soft = _SoftLinks(walk, root)
    waiting = [(ROOT, ROOT, root)]
    while waiting:
        name, group, link = waiting.pop()
        found = soft.follow(group, link.path) if link.path is not None else walk.object_of(link)
        if isinstance(found, ObjectHeader) and found.address in walk.group_at:
            first = walk.group_at[found.address]
            if first == name:
                tree.groups[name] = found
                waiting += [(join(name, inner.name), name, inner) for inner in reversed(walk.links[name])]
            else:
                tree.unknowns[name] = WithoutElements(f"another name of the group `{first}`")
        elif isinstance(found, ObjectHeader) and found.find(LAYOUT):
            tree.datasets[name] = found
        else:
            tree.unknowns[name] = _unknown(link, found)
    return tree


def _unknown(link: Link, found: _Object | None) -> UnknownObject | WithoutElements:
    if isinstance(found, UnknownObject):
        return found
    if found is not None and found.find(DATATYPE):
        return WithoutElements("a named datatype")
    if found is not None:
        return UnknownObject("neither a group nor a dataset")
    if link.elsewhere is not None:
        return UnknownObject(link.elsewhere, "not followed", "HDF5 follows it when it is read")
    return WithoutElements(f"a link to `{link.path}` (which is not in the file)")


class _SoftLinks:
    """Finds what soft links lead to."""

    def __init__(self, walk: _Walk, root: Link) -> None:
        self._walk = walk
        self._root = root
        self._links: dict[str, dict[str, Link]] = {}
        self._n_steps_left = _MAX_STEPS

    def follow(self, group: str, path: str) -> _Object | None:
        """Return what a path leads to from a group; None if that is not in the file."""
        walk = self._walk
        link, group = self._root, ROOT if path.startswith("/") else group
        parts = self._split(path)
        n_links = 1
        while parts:
            found = self._links_of(group).get(parts.popleft())
            if found is None or found.elsewhere is not None or n_links > _MAX_SOFT_LINKS:
                return None
            link = found
            if link.path is not None:
                n_links += 1
                group = ROOT if link.path.startswith("/") else group
                parts.extendleft(reversed(self._split(link.path)))
            elif parts:
                inner = walk.group_at.get(link.address or 0)
                if inner is None or inner not in walk.links:
                    return None
                group = inner
        return walk.object_of(link)

    def _links_of(self, group: str) -> dict[str, Link]:
        if group not in self._links:
            self._links[group] = {link.name: link for link in self._walk.links[group]}
        return self._links[group]

    def _split(self, path: str) -> deque[str]:
        parts = deque(part for part in path.split("/") if part not in {"", "."})
        self._n_steps_left -= len(parts)
        if self._n_steps_left < 0:
            raise LimitError(
                "the paths of soft links are too long together", expected=f"at most {_MAX_STEPS:,} parts"
            )
        return parts

"""A database: all keys, and where their values are. Pure.

The tree is read level by level, so that the nodes of one level are asked for together.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from tensorkeep.errors import FormatError, LimitError, TensorkeepError
from tensorkeep.formats.ocdbt._columns import refuse_unordered
from tensorkeep.formats.ocdbt._manifest import Manifest
from tensorkeep.formats.ocdbt._node import Child, Node, parse_node
from tensorkeep.limits import MAX_DATABASE_KEYS, MAX_DATABASE_NBYTES, MAX_INFLATION, MAX_NAMES_LENGTH
from tensorkeep.transport import ByteRange

Location = tuple[str, ByteRange]
"""A data file, as a path below the directory of the database, and bytes in it."""

Fetch = Callable[[Sequence[Location]], list[bytes]]
"""Reads the bytes at some places."""

_MIN_MOST_NBYTES: Final = 2**20
"""Bytes that any node may have when unpacked."""


def read_database(manifest: Manifest, fetch: Fetch, directory: str) -> dict[bytes, bytes | Location]:
    """Return each key of the newest version with its value, or where that is; the directory is for messages."""
    root = manifest.root
    if root is None:
        return {}
    budget = _Budget()
    level = [Child(root.file, root.span, b"", b"")]
    for height in range(root.height, -1, -1):
        budget.pay(sum(len(child.span) for child in level))
        places = [(child.file.path, child.span) for child in level]
        read = [
            _parsed(child, data, height, budget, directory) for child, data in zip(level, fetch(places), strict=True)
        ]
        _refuse_strangers(level, read)
        if height:
            level = [child for node in read for child in node.children]
    return _values(read)


class _Budget:
    """What may still be read of a tree."""

    def __init__(self) -> None:
        self._n_keys = MAX_DATABASE_KEYS
        self._length = MAX_NAMES_LENGTH
        self.nbytes = MAX_DATABASE_NBYTES

    def pay(self, nbytes: int, keys: Sequence[bytes] = ()) -> None:
        """Count bytes of nodes, and keys."""
        self.nbytes -= nbytes
        self._n_keys -= len(keys)
        self._length -= sum(map(len, keys))
        if min(self.nbytes, self._n_keys, self._length) < 0:
            raise LimitError(
                "the database is too large",
                expected=f"at most {MAX_DATABASE_KEYS:,} keys, of {MAX_NAMES_LENGTH:,} bytes together, "
                f"in nodes of {MAX_DATABASE_NBYTES:,}",
            )


def _parsed(child: Child, data: bytes, height: int, budget: _Budget, directory: str) -> Node:
    most = min(budget.nbytes, max(_MIN_MOST_NBYTES, MAX_INFLATION * len(data)))
    try:
        node = parse_node(data, child.file.base, child.prefix, height, most)
    except TensorkeepError as error:
        raise error.with_fields(path=f"{directory}/{child.file.path}") from None
    budget.pay(node.nbytes, node.keys)
    return node


def _refuse_strangers(level: list[Child], nodes: list[Node]) -> None:
    """Refuse keys that are not below the node that leads to them: a search would not find them."""
    for child, node in zip(level, nodes, strict=True):
        if node.keys[0] < child.least:
            raise FormatError("a key of the database is not where it is looked for", found=f"{node.keys[0][:100]!r}")
    for node, after in zip(nodes, level[1:], strict=False):
        if node.keys[-1] >= after.least:
            raise FormatError("a key of the database is not where it is looked for", found=f"{node.keys[-1][:100]!r}")
    refuse_unordered(child.least for child in level)


def _values(leaves: list[Node]) -> dict[bytes, bytes | Location]:
    values: dict[bytes, bytes | Location] = {}
    ends: dict[str, int] = {}
    nbytes = 0
    for leaf in leaves:
        for key, value in zip(leaf.keys, leaf.values, strict=True):
            if isinstance(value, bytes):
                values[key] = value
                continue
            file, span = value
            values[key] = file.path, span
            ends[file.path] = max(ends.get(file.path, 0), span.stop)
            nbytes += len(span)
    if nbytes > sum(ends.values()):
        raise FormatError("values of the database share bytes", found=f"{nbytes:,} in {sum(ends.values()):,}")
    return values

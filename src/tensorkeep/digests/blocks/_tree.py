"""The file with the digests of all blocks and of the nodes above them. Pure.

    [0, 16)    "tensorkeepblocks"
    [16, 48)   version 1, bytes of a block, digests under a node, bytes of the data: 64 bits each, little-endian
    [48, 80)   BLAKE3 of the digests of all tensors, one after another
    [80, end)  the levels, the highest first; the last one has the digest of each block

Everything before the block digests is read and checked at once. They themselves are checked in pages, the
children of one node.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from itertools import pairwise
from typing import Final

import msgspec

from tensorkeep.buffers import Buffer
from tensorkeep.digests import DIGEST_NBYTES, digest_of
from tensorkeep.digests.blocks._hashes import BLOCK_NBYTES, TAG, node_digest, root_digest
from tensorkeep.digests.blocks._shape import FAN_OUT, TreeShape

PAGE_LENGTH: Final = FAN_OUT
"""Block digests that are checked together."""

_VERSION: Final = 1
_NO_ROOT: Final = bytes(DIGEST_NBYTES)
_PAGE_NBYTES: Final = FAN_OUT * DIGEST_NBYTES


class TreeError(ValueError):
    """Digests that do not have the root; the message says what was found."""


class BlockTree(msgspec.Struct, frozen=True):
    """A tree.

    Attributes:
        file: All bytes of its file.
        root: Its root, 32 bytes.
    """

    file: bytes
    root: bytes


def binding_of(tensor_digests: Iterable[bytes]) -> bytes:
    """Return what binds a tree to the tensors of its file: the digest of their digests, in the order of the data."""
    return digest_of(b"".join(tensor_digests))


def tree_of(digests: bytes, data_nbytes: int, binding: bytes) -> BlockTree:
    """Make the tree over the digests of all blocks."""
    levels = [digests]
    for level, _ in enumerate(TreeShape(data_nbytes).lengths[1:], start=1):
        levels.append(_parents(levels[-1], level))
    head = _head(data_nbytes, binding)
    return BlockTree(b"".join([head, *reversed(levels)]), root_digest(head, levels[-1]))


def parents_of_pages(top: bytes, shape: TreeShape, binding: bytes, root: bytes) -> bytes | None:
    """Check the beginning of a file, up to the block digests; return the digest of each page of these.

    Of a tree with one level, `top` is the whole file, and the result None: all block digests are checked.
    """
    head = _head(shape.data_nbytes, binding)
    if top[: len(head)] != head:
        raise TreeError("the block digests are of another file, or of another version of it")
    levels: list[bytes] = []
    start = len(head)
    for length in reversed(shape.lengths[1:] or shape.lengths):
        levels.append(top[start : start + length * DIGEST_NBYTES])
        start += length * DIGEST_NBYTES
    if root_digest(head, levels[0]) != root:
        raise TreeError("another root")
    for number, (parents, children) in enumerate(pairwise(levels)):
        if _parents(children, len(levels) - number) != parents:
            raise TreeError(f"damage in level {len(levels) - number}")
    return levels[-1] if len(shape.lengths) > 1 else None


def check_page(page: Buffer, number: int, parents: bytes) -> None:
    """Check the digests of the blocks under one node."""
    if node_digest(page, 1, number) != parents[number * DIGEST_NBYTES : (number + 1) * DIGEST_NBYTES]:
        raise TreeError(f"damage in the block digests from {number * FAN_OUT:,} on")


def root_of(file: bytes) -> bytes:
    """Return the root of a file that is consistent in itself; of any other, zeros."""
    if len(file) < len(_head(0, bytes(DIGEST_NBYTES))):
        return _NO_ROOT
    data_nbytes = int.from_bytes(file[40:48], "little")
    shape = TreeShape(min(data_nbytes, len(file) * BLOCK_NBYTES))
    if shape.nbytes != len(file):
        return _NO_ROOT
    tree = tree_of(file[shape.blocks_start :], shape.data_nbytes, file[48:80])
    return tree.root if tree.file == file else _NO_ROOT


def _head(data_nbytes: int, binding: bytes) -> bytes:
    return TAG + struct.pack("<4Q", _VERSION, BLOCK_NBYTES, FAN_OUT, data_nbytes) + binding


def _parents(children: bytes, level: int) -> bytes:
    view = memoryview(children)
    starts = range(0, len(view), _PAGE_NBYTES)
    return b"".join(
        node_digest(view[start : start + _PAGE_NBYTES], level, number) for number, start in enumerate(starts)
    )

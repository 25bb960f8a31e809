"""Digests of 64 KiB blocks, and the tree above them: they prove a part of a file without the rest. Pure.

The tree covers the data of one safetensors file. A file beside it holds all levels below the root, and the root is in
the record that the index has of the file. docs/format.md specifies both.

- `_hashes`: the digest of a block, of a node, and of the root.
- `_shape`: how many digests each level has, and where they are in the file.
- `_tree`: the file, written and read; its digests are checked from the root downwards.
- `_hasher`: the digests of all blocks, and the root, of bytes that pass.
"""

from tensorkeep.digests.blocks._hasher import TREE, BlockHasher
from tensorkeep.digests.blocks._hashes import BLOCK_NBYTES, block_digest
from tensorkeep.digests.blocks._shape import TreeShape
from tensorkeep.digests.blocks._tree import (
    PAGE_LENGTH,
    BlockTree,
    TreeError,
    binding_of,
    check_page,
    parents_of_pages,
    tree_of,
)

__all__ = [
    "BLOCK_NBYTES",
    "PAGE_LENGTH",
    "TREE",
    "BlockHasher",
    "BlockTree",
    "TreeError",
    "TreeShape",
    "binding_of",
    "block_digest",
    "check_page",
    "parents_of_pages",
    "tree_of",
]

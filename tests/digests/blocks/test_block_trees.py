"""Trees over block digests: written, read back, and broken."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import pytest
from blake3 import blake3
from hypothesis import given
from hypothesis import strategies as st

from tensorkeep.digests.blocks import (
    BLOCK_NBYTES,
    PAGE_LENGTH,
    TREE,
    BlockHasher,
    BlockTree,
    TreeError,
    TreeShape,
    binding_of,
    check_page,
    parents_of_pages,
    tree_of,
)

SIZES = [0, 1, BLOCK_NBYTES - 1, BLOCK_NBYTES, BLOCK_NBYTES + 1, 32 * BLOCK_NBYTES, 32 * BLOCK_NBYTES + 1]
BINDING = binding_of([bytes(32)])


def data_of(nbytes: int) -> bytes:
    return (hashlib.sha256(b"block").digest() * (nbytes // 32 + 1))[:nbytes]


def digests_of(data: bytes) -> bytes:
    hasher = BlockHasher()
    hasher.update(data)
    return hasher.digests()


@dataclass
class Large:
    """A tree of three levels, over blocks that are not there: only their digests are needed."""

    n_blocks: int = 40 * 32

    def __post_init__(self) -> None:
        self.data_nbytes = self.n_blocks * BLOCK_NBYTES - 5
        self.digests = b"".join(blake3(number.to_bytes(8)).digest() for number in range(self.n_blocks))
        self.tree = tree_of(self.digests, self.data_nbytes, BINDING)
        self.shape = TreeShape(self.data_nbytes)


LARGE = Large()


def read(file: bytes, shape: TreeShape, root: bytes) -> bytes:
    """Read and check all block digests."""
    if len(file) != shape.nbytes:
        raise TreeError("another length")
    parents = parents_of_pages(file[: shape.blocks_start] if len(shape.lengths) > 1 else file, shape, BINDING, root)
    digests = file[shape.blocks_start :]
    for number in range(0 if parents is None else len(parents) // 32):
        check_page(digests[number * 32 * PAGE_LENGTH : (number + 1) * 32 * PAGE_LENGTH], number, parents or b"")
    return digests


@pytest.mark.parametrize("nbytes", SIZES)
def test_a_tree_gives_back_the_digest_of_each_block(nbytes) -> None:
    data = data_of(nbytes)
    digests = digests_of(data)
    tree = tree_of(digests, nbytes, BINDING)

    assert read(tree.file, TreeShape(nbytes), tree.root) == digests
    assert len(digests) == 32 * -(-nbytes // BLOCK_NBYTES)


def test_a_tree_of_three_levels_gives_back_the_digest_of_each_block() -> None:
    assert LARGE.shape.lengths == [1280, 40, 2]
    assert read(LARGE.tree.file, LARGE.shape, LARGE.tree.root) == LARGE.digests


def test_the_format_is_what_the_page_says() -> None:
    """Computed here from docs/format.md alone."""
    data = data_of(40 * BLOCK_NBYTES + 3)
    tag = b"tensorkeepblocks"

    def keyed(content: bytes, level: int, number: int) -> bytes:
        return blake3(content, key=tag + level.to_bytes(8, "little") + number.to_bytes(8, "little")).digest()

    blocks = [keyed(data[65536 * i : 65536 * (i + 1)], 0, i) for i in range(41)]
    nodes = [keyed(b"".join(blocks[32 * i : 32 * (i + 1)]), 1, i) for i in range(2)]
    numbers = b"".join(value.to_bytes(8, "little") for value in (1, 65536, 32, len(data)))
    head = tag + numbers + blake3(bytes(32)).digest()
    root = keyed(head + b"".join(nodes), 2**64 - 1, 0)

    assert tree_of(digests_of(data), len(data), BINDING) == BlockTree(head + b"".join(nodes) + b"".join(blocks), root)


@given(st.lists(st.integers(1, 3 * BLOCK_NBYTES), max_size=8))
def test_bytes_may_come_in_any_pieces(lengths) -> None:
    data = data_of(sum(lengths))
    hasher, start = BlockHasher(), 0
    for length in lengths:
        hasher.update(data[start : start + length])
        start += length

    assert hasher.digests() == digests_of(data)


def test_equal_blocks_have_different_digests() -> None:
    digests = digests_of(bytes(8 * BLOCK_NBYTES))

    assert len({digests[start : start + 32] for start in range(0, len(digests), 32)}) == 8


@given(st.integers(0, 8 * len(LARGE.tree.file) - 1))
def test_every_changed_bit_is_found(bit) -> None:
    changed = bytearray(LARGE.tree.file)
    changed[bit // 8] ^= 1 << bit % 8

    with pytest.raises(TreeError):
        read(bytes(changed), LARGE.shape, LARGE.tree.root)
    assert checksum(bytes(changed)) != LARGE.tree.root


def checksum(file: bytes) -> bytes:
    hasher = TREE.new(False)
    hasher.update(file)
    return hasher.digest()


@pytest.mark.parametrize("tree", [LARGE.tree, tree_of(b"", 0, BINDING)])
def test_the_checksum_of_a_file_is_its_root(tree) -> None:
    assert checksum(tree.file) == tree.root


def forged() -> dict[str, bytes]:
    file, digests = LARGE.tree.file, LARGE.digests
    start = LARGE.shape.blocks_start
    swapped = digests[32:64] + digests[:32] + digests[64:]
    pages = digests[1024:2048] + digests[:1024] + digests[2048:]
    huge = (2**63).to_bytes(8, "little")
    return {
        "empty": b"",
        "truncated": file[:-32],
        "longer": file + bytes(32),
        "only a head": file[:80],
        "swapped digests": file[:start] + swapped,
        "swapped pages": file[:start] + pages,
        "another fan-out": file[:32] + (64).to_bytes(8, "little") + file[40:],
        "a huge size": file[:40] + huge + file[48:],
        "a huge block": file[:24] + huge + file[32:],
        "another binding": file[:48] + bytes(32) + file[80:],
        "another file's": tree_of(digests[::-1], LARGE.data_nbytes, BINDING).file,
        "a tree that is right, over other tensors": tree_of(digests, LARGE.data_nbytes, binding_of([b"other"])).file,
        "swapped digests under a new tree": tree_of(swapped, LARGE.data_nbytes, BINDING).file,
    }


@pytest.mark.parametrize("what", forged())
def test_forged_files_are_refused(what) -> None:
    file = forged()[what]

    with pytest.raises(TreeError):
        read(file, LARGE.shape, LARGE.tree.root)
    assert checksum(file) != LARGE.tree.root

"""The digests of the blocks of a file that is there already."""

from __future__ import annotations

from collections.abc import Callable

from tensorkeep.digests import new_hasher
from tensorkeep.digests.blocks import BlockHasher, BlockTree, binding_of, tree_of
from tensorkeep.errors import IntegrityError
from tensorkeep.kinds.safetensors import TensorFile


def tree_over(file: TensorFile, on_read: Callable[[int], None] | None = None) -> BlockTree:
    """Return the tree over the data of a file with digests, and refuse damage, which must not get digests."""
    blocks = BlockHasher()
    digests = file.seal.tensor_digests() if file.seal is not None else []
    for name, digest in zip(file.entries, digests, strict=True):
        whole = new_hasher()
        for piece in file.source.pieces(file.span_of(name)):
            whole.update(piece)
            blocks.update(piece)
            if on_read is not None:
                on_read(len(piece))
        if whole.digest() != digest:
            raise IntegrityError(
                f"the bytes of tensor `{name}` are not those that were saved",
                path=file.path,
                tensor=name,
                expected=f"digest {digest.hex()[:16]}…",
                found=f"{whole.hexdigest()[:16]}…",
                hint=f"tensorkeep verify {file.path} lists everything",
            )
    return tree_of(blocks.digests(), file.nbytes, binding_of(digests))

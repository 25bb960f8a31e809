"""Pieces of tensors that are larger than a shard: rows of dimension 0, stored as tensors whose names say so. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import pairwise
from math import gcd

import msgspec

__all__ = ["Piece", "TensorSize", "cut", "pieces_in_order"]

_match = re.compile(r"(?P<tensor>.*)\[(?P<start>[0-9]{1,19}):(?P<stop>[0-9]{1,19})\]", re.DOTALL).fullmatch


class TensorSize(msgspec.Struct, frozen=True):
    """All that a plan needs to know of a tensor.

    Attributes:
        nbytes: Bytes of the tensor in a file.
        shape: Elements along each dimension.
    """

    nbytes: int
    shape: tuple[int, ...]

    @property
    def rows_per_step(self) -> int:
        """Fewest rows of dimension 0 that fill whole bytes: 1, but for elements narrower than a byte."""
        return self.shape[0] // gcd(self.nbytes, self.shape[0])


class Piece(msgspec.Struct, frozen=True):
    """Some rows of a tensor.

    Attributes:
        tensor: Name of the whole tensor.
        start: First row of dimension 0.
        stop: Row after the last one.
    """

    tensor: str
    start: int
    stop: int

    @property
    def name(self) -> str:
        """The name in the shard, such as `big.weight[0:15000]`."""
        return f"{self.tensor}[{self.start}:{self.stop}]"

    @property
    def n_rows(self) -> int:
        """Rows of dimension 0."""
        return self.stop - self.start


def cut(tensor: str, size: TensorSize, max_nbytes: int) -> tuple[Piece, ...]:
    """Cut a tensor along dimension 0 into pieces that fit, as large as they can be.

    Args:
        tensor: Its name.
        size: Its size.
        max_nbytes: Bytes of a piece; one with the fewest rows that fill whole bytes may have more.

    Returns:
        The pieces in order; a single one, or none, where the tensor cannot be cut.
    """
    if not size.shape or not size.nbytes:
        return ()
    n_rows, step = size.shape[0], size.rows_per_step
    step_nbytes = size.nbytes * step // n_rows
    rows = step * max(1, max_nbytes // step_nbytes)
    return tuple(Piece(tensor, start, min(start + rows, n_rows)) for start in range(0, n_rows, rows))


def pieces_in_order(tensor: str, names: Iterable[str]) -> tuple[Piece, ...] | None:
    """Read the names of a tensor's pieces.

    Args:
        tensor: Name of the tensor.
        names: Names of its pieces.

    Returns:
        The pieces, which follow each other from row 0 on without a hole; None where the names say anything else.
    """
    pieces = []
    for name in names:
        found = _match(name)
        piece = Piece(found["tensor"], int(found["start"]), int(found["stop"])) if found else None
        if piece is None or piece.name != name or piece.tensor != tensor or piece.n_rows < 1:
            return None
        pieces.append(piece)
    follow = all(before.stop == after.start for before, after in pairwise(pieces))
    return tuple(pieces) if pieces and pieces[0].start == 0 and follow else None

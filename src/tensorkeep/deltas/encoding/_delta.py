"""The differences of one tensor in a patch: a table of its blocks, and the blocks that have any."""

from __future__ import annotations

from functools import cached_property
from typing import Any, Final, Literal

import numpy as np

from tensorkeep.deltas.encoding._differences import BLOCK_LENGTH, Differences, Words, decode
from tensorkeep.deltas.encoding._words import words_at
from tensorkeep.errors import FormatError
from tensorkeep.tensors import LazyTensor

TABLE_DTYPE: Final = np.dtype("<u4")
"""The table's numbers: bytes of each block, 0 where nothing differs."""

_HEADS_NBYTES: Final = 2**16
"""More bytes than the heads of all planes of a block and its long gaps take."""

Way = Literal["forward", "back"]


class Delta:
    """The differences of one tensor, read from its bytes in a patch when they are needed.

    Attributes:
        stored: The bytes in the patch, a tensor of U8.
        n_words: Words of the tensor that is patched.
        word: Their dtype.
        way: Whether it makes the new tensor of the old one or the old one of the new.
    """

    def __init__(self, stored: LazyTensor, n_words: int, word: np.dtype[Any], way: Way = "forward") -> None:
        self.stored = stored
        self.n_words = n_words
        self.word = word
        self.way: Way = way

    @property
    def reversed(self) -> Delta:
        """The same differences the other way."""
        return Delta(self.stored, self.n_words, self.word, "back" if self.way == "forward" else "forward")

    @property
    def n_blocks(self) -> int:
        """Number of blocks."""
        return -(-self.n_words // BLOCK_LENGTH)

    def apply(self, words: Words, start: int) -> None:
        """Patch a run of words in place, which is at `start` in the tensor."""
        stop = start + len(words)
        for number in range(start // BLOCK_LENGTH, -(-stop // BLOCK_LENGTH)):
            block = self.block(number)
            if block is None:
                continue
            base = number * BLOCK_LENGTH
            first, last = max(start - base, 0), min(stop - base, BLOCK_LENGTH)
            _within(block, first, last).apply(words[base + first - start : base + last - start], self.way)

    def has_block(self, number: int) -> bool:
        """Whether anything differs in a block."""
        return bool(self._ends[number] != self._ends[number + 1])

    def block(self, number: int) -> Differences | None:
        """Return the differences of one block; None if nothing differs."""
        if not self.has_block(number):
            return None
        begin, end = self._ends[number : number + 2]
        n_words = min(BLOCK_LENGTH, self.n_words - number * BLOCK_LENGTH)
        try:
            return decode(words_at(self.stored, int(begin), int(end)).data, n_words, self.word)
        except FormatError as error:
            message = f"{error.message} in `{self.stored.name}`"
            raise error.with_fields(tensor=self.stored.name, message=message) from None

    @cached_property
    def _ends(self) -> Any:
        """Where each block begins in the bytes, and where the last one ends."""
        nbytes = self.stored.nbytes
        table_nbytes = self.n_blocks * TABLE_DTYPE.itemsize
        if table_nbytes <= nbytes:
            lengths = words_at(self.stored, 0, table_nbytes).view(TABLE_DTYPE)
            ends = np.cumsum([table_nbytes, *lengths], dtype=np.int64)
            longest = BLOCK_LENGTH * (self.word.itemsize + 1) + _HEADS_NBYTES
            if ends[-1] == nbytes and lengths.max(initial=0) <= longest:
                return ends
        raise FormatError(
            f"the blocks of `{self.stored.name}` do not fill its bytes",
            tensor=self.stored.name,
            expected=f"{self.n_blocks:,} blocks of differences",
            found=f"{nbytes:,} bytes",
        )


def _within(block: Differences, first: int, last: int) -> Differences:
    """Return the differences of the words [first, last) of a block."""
    if block.positions is None:
        return Differences(None, block.values[first:last])
    begin, end = np.searchsorted(block.positions, (first, last))
    return Differences(block.positions[begin:end] - first, block.values[begin:end])

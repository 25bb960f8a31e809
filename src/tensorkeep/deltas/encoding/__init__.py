"""The differences of tensors as bytes.

- `_planes`: mostly equal bytes, coded in few. Pure.
- `_differences`: how the words of two tensors differ, block by block. Pure.
- `_words`: tensors as words.
- `_delta`: the differences of one tensor, read from a patch.
"""

from tensorkeep.deltas.encoding._delta import TABLE_DTYPE, Delta, Way
from tensorkeep.deltas.encoding._differences import BLOCK_LENGTH, Words, differences, encode
from tensorkeep.deltas.encoding._words import blocks_of, n_words_of, word_of, words_at

__all__ = [
    "BLOCK_LENGTH",
    "TABLE_DTYPE",
    "Delta",
    "Way",
    "Words",
    "blocks_of",
    "differences",
    "encode",
    "n_words_of",
    "word_of",
    "words_at",
]

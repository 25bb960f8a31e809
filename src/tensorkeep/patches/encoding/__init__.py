"""The differences of tensors as bytes.

- `_planes`: mostly equal bytes, coded in few. Pure.
- `_differences`: how the words of two tensors differ, block by block. Pure.
- `_words`: tensors as words.
- `_delta`: the differences of one tensor, read from a patch.
- `_spool`: differences that wait until it is known how many bytes they are.
"""

from tensorkeep.patches.encoding._delta import Delta, Way
from tensorkeep.patches.encoding._differences import BLOCK_LENGTH, Words, differences, encode
from tensorkeep.patches.encoding._spool import Spool, SpooledDelta, spool_directory
from tensorkeep.patches.encoding._words import blocks_of, n_words_of, word_of, words_at

__all__ = [
    "BLOCK_LENGTH",
    "Delta",
    "Spool",
    "SpooledDelta",
    "Way",
    "Words",
    "blocks_of",
    "differences",
    "encode",
    "n_words_of",
    "spool_directory",
    "word_of",
    "words_at",
]

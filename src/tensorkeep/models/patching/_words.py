"""The memory of a tensor as words, in blocks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import torch

from tensorkeep.deltas.encoding import BLOCK_LENGTH

_INTEGERS: Final = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
"""Bytes of a word to the dtype in which torch adds words."""


def words_of(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor as a row of words: a view of its memory if it is contiguous."""
    plain = tensor.detach().resolve_conj().resolve_neg().contiguous()
    itemsize = plain.element_size() // 2 if plain.is_complex() else plain.element_size()
    return plain.reshape(-1).view(torch.uint8).view(_INTEGERS[itemsize])


def blocks_of(words: torch.Tensor) -> Iterator[tuple[int, int]]:
    """Give where blocks of words start and stop."""
    n_words = words.numel()
    return ((start, min(start + BLOCK_LENGTH, n_words)) for start in range(0, n_words, BLOCK_LENGTH))

"""Small tensors as parts of common memory, which the device fills by one copy. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from tensorkeep.arrays import Move
from tensorkeep.tensors.to_device._plan import ALIGNMENT, Task, Transfer

_MIN_TENSORS: Final = 2
"""Tensors that are worth common memory."""


class Together(msgspec.Struct, frozen=True):
    """Memory that several tensors are parts of.

    Attributes:
        target: Its number.
        moves: Its tensors, by number, and where they are.
    """

    target: int
    moves: Sequence[Move]

    @property
    def nbytes(self) -> int:
        """Bytes, a multiple of the size of any element."""
        return -(-self.moves[-1].stop // ALIGNMENT) * ALIGNMENT


def packed_together(tasks: Iterable[Task], n_targets: int) -> tuple[list[Task], list[Together]]:
    """Let the tensors of a transfer be parts of common memory, with the places that they have in the buffer.

    Common memory is a target, too; the first one has the number `n_targets`.
    """
    together: list[Together] = []

    def changed(transfer: Transfer) -> Transfer:
        moves = transfer.moves
        if len(moves) < _MIN_TENSORS:
            return transfer
        together.append(Together(n_targets + len(together), moves))
        whole = Move(together[-1].target, 0, 0, moves[-1].stop)
        return msgspec.structs.replace(transfer, moves=(whole,))

    return [[changed(transfer) for transfer in task] for task in tasks], together

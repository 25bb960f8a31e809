"""CRC-32C (Castagnoli), summed by NumPy at several GB/s.

A CRC is the remainder of the bytes, as a polynomial over GF(2), divided by a polynomial P. Adding a multiple of P
does not change it, and x^6777 + x^484 + x^100 + 1 is one. So a run of bytes can be cleared by adding it in three
places further on: three vector operations. The square of a multiple is a multiple, so the same holds with all
exponents times 8 (for bytes) and times 64 (for words). A table of each byte value at each place sums the rest.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import msgspec

from tensorkeep.buffers import Buffer

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Units: TypeAlias = npt.NDArray[np.unsignedinteger[Any]]

_POLYNOMIAL: Final = 0x82F63B78
"""P without its first term, lowest bit first, as the bits of a byte come."""

_REACH: Final = 6777
_STEPS: Final = (_REACH - 484, _REACH - 100, _REACH)
"""How many units further on a cleared unit is added: the differences between the exponents."""

_WORD_NBYTES: Final = 8
_PIECE_NBYTES: Final = 2**19
"""Bytes that are added at a time, so that they stay in the L2 cache."""

_ROW_NBYTES: Final = 256
"""Bytes that one use of the table sums."""

_ONES: Final = b"Td\x1fd"
"""Bytes whose remainder is all ones: what every CRC-32C begins with."""

_ALL_ONES: Final = 0xFFFFFFFF
_MASK: Final = 0xA282EAD8


class Crc32c:
    """A CRC-32C under way."""

    def __init__(self) -> None:
        import numpy as np  # late: opening files does not need it

        self._rest: Units = np.frombuffer(_ONES, np.uint8)
        """Bytes with the same remainder as all before them."""

    def update(self, data: Buffer, /) -> None:
        """Add bytes."""
        import numpy as np

        new = np.frombuffer(data, np.uint8)
        for start in range(0, len(new), _PIECE_NBYTES):
            piece = new[start : start + _PIECE_NBYTES]
            words = np.concatenate((_zeros(-(len(self._rest) + len(piece)) % _WORD_NBYTES), self._rest, piece))
            self._rest = _fold(words.view(np.uint64)).view(np.uint8)

    def digest(self) -> bytes:
        """Return the checksum of all bytes so far, big-endian."""
        return self.value().to_bytes(4, "big")

    def value(self) -> int:
        """Return the checksum of all bytes so far."""
        import numpy as np

        rest = _fold(self._rest.copy())
        rows = np.concatenate((_zeros(-len(rest) % _ROW_NBYTES), rest)).reshape(-1, _ROW_NBYTES)
        table = _table()
        remainder = 0
        for row in np.bitwise_xor.reduce(table.flat[rows + table.starts], axis=1).tolist():
            for place, values in enumerate(table.first):
                row ^= values[remainder >> 8 * place & 255]  # noqa: PLW2901
            remainder = row
        return remainder ^ _ALL_ONES


def crc32c(data: Buffer) -> int:
    """Return the CRC-32C of some bytes."""
    sum_ = Crc32c()
    sum_.update(data)
    return sum_.value()


def masked(crc: int) -> int:
    """Return the form in which files hold a CRC, so that the CRC of bytes that hold CRCs is not a special one."""
    return ((crc >> 15 | crc << 17) + _MASK) & _ALL_ONES


def unmasked(stored: int) -> int:
    """Return the CRC that files hold in this form."""
    turned = (stored - _MASK) & _ALL_ONES
    return (turned >> 17 | turned << 15) & _ALL_ONES


def _fold(units: Units) -> Units:
    """Return the last units, after adding all others to them; changes `units`."""
    import numpy as np

    n_cleared = max(len(units) - _REACH, 0)
    for start in range(0, n_cleared, _STEPS[0]):
        cleared = units[start : min(start + _STEPS[0], n_cleared)]
        for step in _STEPS:
            further = units[start + step : start + step + len(cleared)]
            np.bitwise_xor(further, cleared, out=further)
    return units[n_cleared:]


def _zeros(nbytes: int) -> Units:
    """Return bytes that do not change a remainder when they come first."""
    import numpy as np

    return np.zeros(nbytes, np.uint8)


class _Table(msgspec.Struct, frozen=True):
    """The remainder of each byte value at each place of a row.

    Attributes:
        flat: By place and value.
        starts: Where each place begins.
        first: The first four places, as lists.
    """

    flat: Any
    starts: Any
    first: list[list[int]]


@cache
def _table() -> _Table:
    import numpy as np

    last: Any = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        last = last >> 1 ^ _POLYNOMIAL * (last & 1)
    places = [last]
    for _ in range(_ROW_NBYTES - 1):
        places.append(places[-1] >> 8 ^ last[places[-1] & 255])
    table = np.stack(places[::-1])
    return _Table(table.reshape(-1), np.arange(_ROW_NBYTES) * 256, table[:4].tolist())

"""Scale-offset: the elements of a chunk as their differences from the least one, in as few bits as these need. Pure.

A header of 21 bytes has the bits of each difference (4 bytes) and, from byte 5 on, the least element (8 bytes). The
differences follow without gaps, their highest bits first. A difference with all bits set is the fill value.
Floats were multiplied by a power of ten and rounded before. Facts: HDF5, `H5Zscaleoffset.c`.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from tensorkeep.buffers import Buffer
from tensorkeep.errors import FormatError, UnsupportedError

HEADER_NBYTES: Final = 21
MAX_ADDED_NBYTES: Final = HEADER_NBYTES + 1
"""By how much a chunk may become longer."""

_LEAST: Final = slice(5, 13)
_N_VALUES: Final = 20
_FILL: Final = slice(8, 10)
_INTEGERS: Final = 0
_SIZES: Final = {(2, _INTEGERS): (1, 2, 4, 8), (0, 1): (4, 8)}
"""Method and class of elements to their sizes: integers without a scale, and floats with a decimal one."""

_N_AT_ONCE: Final = 2**16
"""Elements whose bits are in memory as bytes; so many end with a whole byte."""


class _Setup(NamedTuple):
    """What the filter was set up with."""

    method: int
    factor: int
    n_elements: int
    kind: int
    size: int
    is_signed: int
    is_big_endian: int
    has_fill: int


def restore_scaled(data: Buffer, values: tuple[int, ...], nbytes: int) -> Buffer:
    """Return the elements of a chunk, which must be `nbytes`; `values` are what the filter was set up with."""
    setup = _checked_setup(values, nbytes)
    if setup.kind == _INTEGERS and setup.factor == 8 * setup.size:  # then nothing was done
        return data
    import numpy as np

    n_elements, size = setup.n_elements, setup.size
    view = memoryview(data).cast("B")
    n_bits = int.from_bytes(view[:4], "little")
    if len(view) < HEADER_NBYTES or n_bits > 8 * size or len(view) < HEADER_NBYTES + -(-n_elements * n_bits // 8):
        raise FormatError(
            "a scaled chunk does not have the bits of its elements",
            expected=f"{HEADER_NBYTES} bytes and {n_elements:,} times {n_bits} bits",
            found=f"{len(view):,} bytes",
        )
    packed = view[HEADER_NBYTES:]
    least = view[_LEAST]
    fill = b"".join(value.to_bytes(4, "little") for value in values[_FILL])
    if n_bits == 8 * size:  # the elements themselves
        found: Any = np.frombuffer(packed, f"<u{size}", n_elements)
    else:
        found = np.empty(n_elements, f"<u{size}")
        for start in range(0, n_elements, _N_AT_ONCE):
            part = found[start : start + _N_AT_ONCE]
            part[:] = _restored(_unpacked(packed, start, len(part), n_bits, size), n_bits, least, fill, setup)
    return memoryview(found.byteswap() if setup.is_big_endian else found).cast("B")


def _restored(differences: Any, n_bits: int, least: Buffer, fill: bytes, setup: _Setup) -> Any:
    """Return elements as unsigned numbers, given their differences from the least one."""
    import numpy as np

    first = np.frombuffer(least, differences.dtype, 1)
    is_integer = setup.kind == _INTEGERS
    found = differences + first if is_integer else _divided(differences, first, setup.factor)
    if setup.has_fill:
        found[differences == 2**n_bits - 1] = np.frombuffer(fill, differences.dtype, 1)
    return found


def _checked_setup(values: tuple[int, ...], nbytes: int) -> _Setup:
    if len(values) < _N_VALUES:
        raise FormatError(
            "a scale-offset filter is not set up", expected=f"{_N_VALUES} values", found=f"{len(values)}"
        )
    setup = _Setup(*values[:8])
    if setup.size not in _SIZES.get((setup.method, setup.kind), ()):
        raise UnsupportedError(
            "a chunk is scaled in a way that HDF5 does not read",
            found=f"method {setup.method} for elements of class {setup.kind} and {setup.size} bytes",
        )
    if setup.n_elements * setup.size != nbytes:
        raise FormatError(
            "a chunk has another size than its shape",
            expected=f"{nbytes:,} bytes",
            found=f"{setup.n_elements * setup.size:,}",
        )
    return setup


def _divided(found: Any, least: Any, factor: int) -> Any:
    """Return floats as unsigned numbers, computed in their own precision, like HDF5 does."""
    import numpy as np

    size = found.itemsize
    exponent = factor - 2**32 if factor >= 2**31 else factor
    with np.errstate(all="ignore"):
        power = np.power(np.float64(10), exponent).astype(f"<f{size}")
        return (found.view(f"<i{size}").astype(f"<f{size}") / power + least.view(f"<f{size}")).view(f"<u{size}")


def _unpacked(packed: memoryview, start: int, n_elements: int, n_bits: int, size: int) -> Any:
    """Return numbers of so many bits, which follow each other without gaps, as unsigned ones of some bytes."""
    import numpy as np

    if not n_bits:
        return np.zeros(n_elements, f"<u{size}")
    first = start * n_bits // 8
    of_part = np.frombuffer(packed[first : first - (-n_elements * n_bits // 8)], np.uint8)
    bits = np.zeros((n_elements, 8 * size), np.uint8)
    bits[:, -n_bits:] = np.unpackbits(of_part, count=n_elements * n_bits).reshape(n_elements, n_bits)
    return np.packbits(bits, axis=1).view(f">u{size}")[:, 0].astype(f"<u{size}")

"""The shape of a dataset or an attribute. Pure."""

from __future__ import annotations

from typing import Final

import msgspec

from tensorkeep.errors import FormatError, UnsupportedError
from tensorkeep.formats.hdf5.structures import Fields
from tensorkeep.limits import MAX_NDIM

_NULL: Final = 2


class Dataspace(msgspec.Struct, frozen=True):
    """A shape, and how far it may grow.

    Attributes:
        shape: Elements along each dimension; None if there are none at all, not even one.
        most: Most elements along each dimension; None where there is no bound.
    """

    shape: tuple[int, ...] | None
    most: tuple[int | None, ...]


def parse_dataspace(data: bytes, length_nbytes: int) -> Dataspace:
    """Parse a dataspace message."""
    fields = Fields(data)
    version, ndim, flags = fields.uint(1), fields.uint(1), fields.uint(1)
    if version not in {1, 2}:
        raise UnsupportedError("a dataspace has a version that is not known", found=str(version))
    kind = fields.uint(1)
    fields.skip(4 if version == 1 else 0)
    if version == 2 and kind == _NULL:
        return Dataspace(None, ())
    if ndim > MAX_NDIM:
        raise FormatError("a dataset has more dimensions than HDF5 has", found=str(ndim))
    shape = tuple(fields.uint(length_nbytes) for _ in range(ndim))
    if not flags & 1:
        return Dataspace(shape, shape)
    bounds = [fields.take(length_nbytes) for _ in range(ndim)]
    most = tuple(None if bound == b"\xff" * length_nbytes else int.from_bytes(bound, "little") for bound in bounds)
    return Dataspace(shape, most)

"""Where the tensors of a file are, and the nested value that they are parts of."""

from __future__ import annotations

from math import prod
from typing import Any

from tensorkeep.collector import PausedCollector
from tensorkeep.dtypes import BY_NUMPY, FOREIGN_DTYPES
from tensorkeep.errors import FormatError
from tensorkeep.formats import FileContents, TensorPlace, UntypedTensor, dense_nbytes
from tensorkeep.formats.msgpack import Array, read_document
from tensorkeep.transport import ByteSource, JoinedSource

_DTYPES = {dtype.numpy: dtype.name for dtype in (*BY_NUMPY.values(), *FOREIGN_DTYPES) if not dtype.is_packed}
"""NumPy's name to ours. Elements of 4 and 6 bits are not in it: NumPy holds each in a byte, our dtypes do not."""


class NestedContents(FileContents, frozen=True):
    """What a file says of itself.

    Attributes:
        value: Nested dicts and lists of plain data, with an `Array` for each tensor.
    """

    value: Any = None


def parse_msgpack(source: ByteSource) -> NestedContents:
    """Read a file, all but the elements; arrays of dtypes that only NumPy has are unknown, but can be given one."""
    document = read_document(source)
    tensors: dict[str, TensorPlace] = {}
    unknowns: dict[str, Any] = dict(document.unknowns)
    with PausedCollector():
        for name, array in document.arrays.items():
            place = _place(array, source)
            if array.dtype in _DTYPES:
                tensors[name] = place
            else:
                unknowns[name] = _untyped(name, array, place)
    return NestedContents(tensors, unknowns=unknowns, value=document.value)


def _place(array: Array, source: ByteSource) -> TensorPlace:
    dtype = _DTYPES.get(array.dtype, array.dtype)
    if len(array.spans) == 1:
        (span,) = array.spans
        nbytes = len(span)
        is_dense = nbytes == dense_nbytes(dtype, array.shape)
        return TensorPlace(dtype, array.shape, span.start, None if is_dense else nbytes)
    joined = JoinedSource([(source, span) for span in array.spans], source.name)
    return TensorPlace(dtype, array.shape, 0, array.nbytes, source=joined)


def _untyped(name: str, array: Array, place: TensorPlace) -> UntypedTensor:
    n_elements = prod(array.shape)
    itemsize = array.nbytes // n_elements if n_elements else 0
    if itemsize * n_elements != array.nbytes:
        raise FormatError(
            f"tensor `{name}` does not have the size of its shape",
            tensor=name,
            expected=f"a multiple of {n_elements:,} bytes",
            found=f"{array.nbytes:,}",
        )
    return UntypedTensor(f"an array of {array.dtype!r:.100}, {itemsize} bytes per element", itemsize, place)

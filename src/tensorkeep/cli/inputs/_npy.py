"""Writes an array to a `.npy` file, completely or not at all."""

from __future__ import annotations

import os
from enum import StrEnum
from errno import EEXIST
from io import BytesIO
from typing import TYPE_CHECKING, Any

from tensorkeep.errors import DestinationExistsError, DtypeError, UnsupportedError
from tensorkeep.transport import publish

if TYPE_CHECKING:
    from numpy.typing import NDArray


class Float(StrEnum):
    """Dtypes that values can be converted to: those that represent every narrower float exactly."""

    FLOAT32 = "float32"
    FLOAT64 = "float64"


def as_float(array: NDArray[Any], dtype: Float) -> NDArray[Any]:
    """Convert values."""
    if array.dtype.kind == "c":
        raise DtypeError(
            "complex values cannot be converted to floats", found=array.dtype.name, hint="Leave out --as"
        )
    return array.astype(dtype.value)


def check_npy_path(path: str, *, overwrite: bool) -> None:
    """Refuse a path with another suffix, and one of a file that the user does not want to replace."""
    if not path.endswith(".npy"):
        raise UnsupportedError("the output must be a .npy file", expected="a path that ends in .npy", found=path)
    if os.path.lexists(path) and not overwrite:
        raise DestinationExistsError("the file exists", path=path, hint="--force replaces it").numbered(EEXIST)


def write_npy(array: NDArray[Any], path: str) -> None:
    """Write an array to a `.npy` file."""
    import numpy as np
    from numpy.lib.format import header_data_from_array_1_0, write_array_header_1_0

    if array.dtype.isbuiltin != 1:
        raise DtypeError(
            f"a .npy file cannot hold {array.dtype.name}",
            hint="Pass --as float32, which represents each of its values exactly",
        )
    head = BytesIO()
    write_array_header_1_0(head, header_data_from_array_1_0(array))
    with publish(path) as sink:
        sink.preallocate(head.tell() + array.nbytes)
        sink.write([head.getvalue(), array.reshape(-1).view(np.uint8).data])

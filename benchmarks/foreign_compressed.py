"""Files whose tensors are deflated: NumPy's archives, and HDF5 with its usual filters."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np

from benchmarks.foreign import FORMATS, WORKS, Array, ForeignFormat

__all__ = ["COMPRESSED"]

_WORKS: Final = WORKS - {"convert"}  # `cp` unpacks nothing
_BY_NAME: Final = {form.name: form for form in FORMATS}


def _write_npz(path: Path, tensors: Iterator[tuple[str, Array]]) -> Path:
    np.savez_compressed(path, allow_pickle=False, **dict(tensors))
    return path


def _write_h5(path: Path, tensors: Iterator[tuple[str, Array]]) -> Path:
    import h5py

    with h5py.File(path, "w") as file:
        for name, array in tensors:
            file.create_dataset(name, data=array, chunks=True, compression="gzip", compression_opts=1, shuffle=True)
    return path


def _deflated(form: ForeignFormat, name: str, write: Any) -> ForeignFormat:
    return msgspec.structs.replace(
        form, name=name, write=write, ztensor_reads=frozenset(), loops=frozenset(), works=_WORKS
    )


COMPRESSED: Final = (
    _deflated(_BY_NAME["npz"], "npz-deflated", _write_npz),
    _deflated(_BY_NAME["hdf5"], "hdf5-deflated", _write_h5),
)
"""The same libraries, listing and reading as without compression."""

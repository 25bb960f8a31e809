"""HDF5 files with datasets of every dtype in every layout, written by h5py, and what h5py reads from them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import h5py
import numpy as np
import numpy.typing as npt

from tensorkeep.formats.hdf5.structures._checksums import CHECKSUM_NBYTES, lookup3

Array = npt.NDArray[Any]

LIBVERS: Final = ("earliest", "v108", "v110", "latest")
DTYPES: Final = (
    *("?", "i1", "u1", "<i2", "<u2", "<i4", "<u4", "<i8", "<u8", "<f2", "<f4", "<f8", "<c8", "<c16"),
    *(">i2", ">i4", ">u8", ">f2", ">f4", ">f8", ">c8", ">c16"),
)

_SHAPE: Final = (13, 17)
_CHUNK: Final = (4, 5)
SETTINGS: Final[dict[str, dict[str, Any]]] = {
    "contiguous": {},
    "chunked": {"chunks": _CHUNK},
    "deflated": {"chunks": _CHUNK, "compression": "gzip"},
    "fast": {"chunks": _CHUNK, "compression": "lzf", "fletcher32": True},
    "shuffled and fast": {"chunks": _CHUNK, "compression": "lzf", "shuffle": True},
    "all filters": {"chunks": _CHUNK, "compression": "gzip", "shuffle": True, "fletcher32": True},
    "shuffled": {"chunks": _CHUNK, "shuffle": True, "maxshape": (26, None)},
    "summed": {"chunks": _CHUNK, "fletcher32": True, "maxshape": (None, 17)},
    "free": {"chunks": _CHUNK, "compression": "gzip", "maxshape": (None, None)},
    "bounded": {"chunks": _CHUNK, "maxshape": (30, 30)},
    "one chunk": {"chunks": _SHAPE},
    "one deflated chunk": {"chunks": _SHAPE, "compression": "gzip"},
    "a large chunk": {"chunks": (20, 20), "compression": "gzip", "maxshape": (None, None)},
}


def numbers(dtype: str, shape: tuple[int, ...], seed: int = 0) -> Array:
    """Return some numbers of a dtype."""
    random = np.random.default_rng(seed)
    if dtype == "?":
        return random.integers(0, 2, shape).astype(bool)
    if np.dtype(dtype).kind in "fc":
        return (random.standard_normal(shape) * (1 + 1j if np.dtype(dtype).kind == "c" else 1)).astype(dtype)
    return random.integers(0, 100, shape).astype(dtype)


def fill_group(group: h5py.Group, dtype: str) -> None:
    """Write datasets of a dtype in every layout."""
    one = numbers(dtype, (), 1)
    group["scalar"] = numbers(dtype, ())
    group["vector"] = numbers(dtype, (7,))
    for name, settings in SETTINGS.items():
        group.create_dataset(name, data=numbers(dtype, _SHAPE), **settings)
    group.create_dataset("never written", shape=(3, 4), dtype=dtype)
    group.create_dataset("never written, filled", shape=(3, 4), dtype=dtype, fillvalue=one)
    group.create_dataset("no chunk written", shape=(3, 4), dtype=dtype, chunks=(2, 2), fillvalue=one)
    part = group.create_dataset("some chunks", shape=(30, 40), dtype=dtype, chunks=(7, 9), fillvalue=one)
    part[3:12, 20:30] = numbers(dtype, (9, 10))
    group.create_dataset("empty", shape=(0, 4), dtype=dtype)
    group.create_dataset("empty, may grow", shape=(0, 4), dtype=dtype, maxshape=(None, 4))
    group.create_dataset("arrays", shape=(5,), dtype=np.dtype((dtype, (2, 3))), chunks=(2,), compression="gzip")
    group["arrays"][:4] = numbers(dtype, (4, 2, 3))
    compact(group, "compact", numbers(dtype, (3, 2)))


def compact(group: h5py.Group, name: str, array: Array) -> None:
    """Write a dataset whose elements are in its header."""
    settings = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    settings.set_layout(h5py.h5d.COMPACT)
    space = h5py.h5s.create_simple(array.shape)
    kind = h5py.h5t.py_create(array.dtype, logical=True)
    h5py.Dataset(h5py.h5d.create(group.id, name.encode(), kind, space, settings))[...] = array


def expected(path: Path) -> dict[str, Array]:
    """Return all datasets of numbers by name, as h5py reads them, in the machine's byte order."""
    found: dict[str, Array] = {}

    def visit(name: str, item: Any) -> None:
        if isinstance(item, h5py.Dataset) and item.shape is not None and item.dtype.base.kind in "biufc":
            array = np.asarray(item[()])
            found[name] = array.astype(array.dtype.newbyteorder("="))

    with h5py.File(path) as file:
        file.visititems(visit)
    return found


def same(found: Any, wanted: Array) -> bool:
    """Say whether two arrays have the same shape and the same bits."""
    array = np.asarray(found)
    return array.shape == wanted.shape and array.dtype == wanted.dtype and array.tobytes() == wanted.tobytes()


def write(path: Path, fill: Callable[[h5py.File], object], **settings: Any) -> Path:
    """Write a file."""
    with h5py.File(path, "w", **settings) as file:
        fill(file)
    return path


def resummed(content: bytes) -> bytes:
    """Return a file whose object headers have the checksums of what is in them."""
    data = bytearray(content)
    start = data.find(b"OHDR")
    while start >= 0:
        flags = data[start + 5]
        at = start + 6 + (16 if flags & 0x20 else 0) + (4 if flags & 0x10 else 0)
        width = 1 << (flags & 3)
        stop = at + width + int.from_bytes(data[at : at + width], "little")
        data[stop : stop + CHECKSUM_NBYTES] = lookup3(bytes(data[start:stop])).to_bytes(CHECKSUM_NBYTES, "little")
        start = data.find(b"OHDR", stop)
    return bytes(data)

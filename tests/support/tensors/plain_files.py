"""Files made by hand, byte by byte, so that what tensorkeep reads from them can be compared with something else."""

from __future__ import annotations

import io
import json
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
import numpy.typing as npt

import tensorkeep
from tensorkeep.dtypes import BY_NAME, DType

__all__ = ["WAYS", "Known", "file_of", "opened", "same_bits"]

Array = npt.NDArray[Any]


class Known(NamedTuple):
    """A tensor whose content is known.

    Attributes:
        dtype: Its row in the dtype table.
        array: The content, as NumPy and ml_dtypes hold it.
    """

    dtype: DType
    array: Array

    @classmethod
    def random(cls, name: str, shape: tuple[int, ...], seed: int = 0) -> Known:
        """Make a tensor of random bits, NaNs of every kind included."""
        dtype = BY_NAME[name]
        bits = min(dtype.bits, 1 if name == "BOOL" else 64)
        numbers = np.random.default_rng(seed).integers(0, 2**bits, shape, np.uint64)
        plain = numbers.astype(dtype.bits_name)
        own = getattr(ml_dtypes, dtype.numpy, None) or dtype.numpy
        return cls(dtype, plain.view(own).reshape(shape))

    @property
    def data(self) -> bytes:
        """The bytes in a file, packed without tensorkeep's help."""
        if self.dtype.bits >= 8:
            return self.array.tobytes()
        elements = self.array.reshape(-1).view(np.uint8).tolist()
        stream = sum(element << place * self.dtype.bits for place, element in enumerate(elements))
        return stream.to_bytes(len(elements) * self.dtype.bits // 8, "little")


def file_of(tensors: Mapping[str, Known], *, padding: int = 0) -> bytes:
    """Put a file together: tensors in the order given, `padding` spaces after the header."""
    header, data = {}, b""
    for name, tensor in tensors.items():
        offsets = [len(data), len(data) + len(tensor.data)]
        header[name] = {"dtype": tensor.dtype.name, "shape": list(tensor.array.shape), "data_offsets": offsets}
        data += tensor.data
    text = json.dumps(header).encode() + b" " * padding
    return len(text).to_bytes(8, "little") + text + data


def whole_bytes(dtype: str, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the shape, or one more dimension where the elements would not fill whole bytes."""
    return (*shape, 4) if prod(shape) * BY_NAME[dtype].bits % 8 else shape


def same_bits(found: Array, expected: Array) -> bool:
    """Say whether two arrays are the same: dtype, shape and every bit."""
    return found.dtype == expected.dtype and found.shape == expected.shape and found.tobytes() == expected.tobytes()


WAYS: dict[str, Callable[[Path], dict[str, Any]]] = {
    "mmap": lambda path: {"target": path, "backend": "mmap"},
    "pread": lambda path: {"target": path, "backend": "pread"},
    "bytes": lambda path: {"target": path.read_bytes()},
    "file object": lambda path: {"target": io.BytesIO(path.read_bytes())},
}
"""Every way of reading: name to the arguments of `tensorkeep.open`."""


@contextmanager
def opened(file: bytes, way: str, **options: Any) -> Iterator[tensorkeep.TensorFile]:
    """Open a file in one of the ways."""
    with tempfile.NamedTemporaryFile(suffix=".safetensors") as stored:
        stored.write(file)
        stored.flush()
        with tensorkeep.open(**WAYS[way](Path(stored.name)), **options) as opened_file:
            yield opened_file

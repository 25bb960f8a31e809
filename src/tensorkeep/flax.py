"""The functions of `safetensors.flax`: change the import, keep the code.

    from tensorkeep.flax import load_file, save_file

Names, arguments and results are as in safetensors 0.8 and 0.9. As there, arrays are on jax's default device, and
64-bit numbers become 32-bit ones unless `jax_enable_x64` is on; `tensorkeep.load(..., framework="jax")` refuses them.
Better here: memory is shared where jax allows it, the dict that is saved is not changed, and dtypes that NumPy lacks
work.
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from tensorkeep.compat import files, safe_open
from tensorkeep.compat.describing import described
from tensorkeep.errors import importing

with importing(jax="jax"):
    import jax
    import jax.numpy as jnp

__all__ = ["load", "load_file", "safe_open", "save", "save_file"]


def save(tensors: dict[str, jax.Array], metadata: dict[str, str] | None = None) -> bytes:
    """Encode arrays as the bytes of a safetensors file.

    Args:
        tensors: Name to array.
        metadata: Free text by key.

    Returns:
        The content of a file.

    Raises:
        DtypeError: If the format has no such dtype (also a TypeError).
        UnsupportedError: If a value has no bytes, such as one that is traced.
        TypeError: If a name or metadata is not text.
        HeaderError: If a name or text has no UTF-8 form, or a name is the one that the format reserves.
        LimitError: If there are more names than a header can hold.
    """
    return files.encode(described(tensors), metadata)


def save_file(
    tensors: dict[str, jax.Array],
    filename: str | os.PathLike[str],
    metadata: dict[str, str] | None = None,
    *,
    durable: bool = False,
) -> None:
    """Save arrays to a safetensors file. It appears complete or not at all.

    Args:
        tensors: Name to array.
        filename: The file to write; one that exists is replaced.
        metadata: Free text by key.
        durable: Whether to wait until the disk has everything (fsync), so that not even a power cut loses it. Off,
            as in the reference; in `tensorkeep.save` it is on.

    Raises:
        DtypeError: If the format has no such dtype (also a TypeError).
        UnsupportedError: If a value has no bytes, such as one that is traced.
        TypeError: If a name or metadata is not text, or `filename` is not a path.
        HeaderError: If a name or text has no UTF-8 form, or a name is the one that the format reserves.
        LimitError: If there are more names than a header can hold.
        TransportError: If the file cannot be written; it is then as it was (also an OSError).
    """
    files.write(described(tensors), filename, metadata, durable=durable)


def load(data: bytes) -> dict[str, jax.Array]:
    """Decode the bytes of a safetensors file.

    Args:
        data: The content of a file: bytes, a bytearray or a memoryview.

    Returns:
        Name to array, in the order of the bytes in the file. They own their memory.

    Raises:
        TypeError: If `data` is of another type.
        HeaderError: If it is not a whole safetensors file.
        DtypeError: If the library has no such dtype (also a TypeError).
        LimitError: If a shape is beyond what the library can hold.
    """
    return files.decode(data, "flax")


def load_file(filename: str | os.PathLike[str], *, backend: str = "auto") -> dict[str, jax.Array]:
    """Load all arrays of a safetensors file.

        arrays = load_file("model.safetensors")

    Args:
        filename: The file.
        backend: How to read: `"mmap"`, `"pread"`, or `"auto"`, which maps the file unless it is on a network or FUSE
            file system.

    Returns:
        Name to array, in the order of the bytes in the file.

    Raises:
        TypeError: If an argument is of the wrong type.
        SourceMissingError: If there is no such file (also a FileNotFoundError).
        HeaderError: If it is not a whole safetensors file.
        DtypeError: If the library has no such dtype (also a TypeError).
        LimitError: If a shape is beyond what the library can hold.
        TensorkeepError: If `backend` is invalid.
        TransportError: If the file cannot be read (also an OSError).
    """
    return files.read(filename, "flax", backend=backend)


def _np2jnp(numpy_dict: dict[str, Any]) -> dict[str, jax.Array]:
    """Make arrays of NumPy's, in place."""
    for name, array in numpy_dict.items():
        numpy_dict[name] = jnp.array(array)
    return numpy_dict


def _jnp2np(jnp_dict: dict[str, Any]) -> dict[str, Any]:
    """Make NumPy arrays of jax's, in place."""
    for name, array in jnp_dict.items():
        jnp_dict[name] = np.asarray(array)
    return jnp_dict

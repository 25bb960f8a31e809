"""Writes arrays as orbax does, with other chunks and smaller nodes; `python zarr_program.py DIRECTORY FORM`.

It runs in a process of its own: tensorstore has threads, and our tests fork.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

_BYTES = {"name": "bytes", "configuration": {"endian": "little"}}
_BIG = {"name": "bytes", "configuration": {"endian": "big"}}
_ZSTD = {"name": "zstd", "configuration": {"level": 1}}
_CRC = {"name": "crc32c"}


def table() -> np.ndarray[Any, Any]:
    """Return an array that is mostly numbers, and zeros at its beginning."""
    numbers = np.random.default_rng(0).standard_normal((300, 40)).astype(np.float32)
    numbers[:50] = 0
    return numbers


def rows(number: int) -> np.ndarray[Any, Any]:
    """Return one of many small arrays."""
    return np.arange(17 * 23).reshape(17, 23) + 1000 * number


N_ROWS = 40


def large() -> np.ndarray[Any, Any]:
    """Return an array of 200 MB."""
    return np.arange(50_000_000, dtype=np.int32).reshape(10_000, 5_000)


def save(directory: Path, form: str) -> None:
    """Run this program."""
    subprocess.run([sys.executable, __file__, str(directory), form], check=True)


def main(directory: str, form: str) -> None:
    if form == "deep":
        shards = _version3(table(), (32, 40), _sharded((8, 10), [_BYTES, _ZSTD, _CRC], "start"))
        arrays = {"table": (table(), shards)}
        for number in range(N_ROWS):
            arrays[f"rows.{number}"] = rows(number), _version3(rows(number), (5, 7), [_BIG], "v2")
        _write(directory, arrays, max_decoded_node_bytes=1500, max_inline_value_bytes=60)
    elif form == "zarr-2":
        array = large()
        _write(directory, {"large": (array, _version2(array, (100, 500)))})
    else:
        array = large()
        codecs = _sharded((100, 500), [_BYTES, _ZSTD], "end")
        _write(directory, {"large": (array, _version3(array, (1000, 500), codecs))})


def _version2(array: Any, chunk: Any) -> dict[str, Any]:
    return {"shape": array.shape, "chunks": chunk, "dtype": array.dtype.str, "compressor": {"id": "zstd"}}


def _version3(array: Any, chunk: Any, codecs: Any, keys: str = "default") -> dict[str, Any]:
    return {
        "shape": array.shape,
        "data_type": array.dtype.name,
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": chunk}},
        "chunk_key_encoding": {"name": keys},
        "codecs": codecs,
    }


def _sharded(chunk: Any, codecs: Any, location: str) -> list[dict[str, Any]]:
    configuration = {
        "chunk_shape": chunk,
        "codecs": codecs,
        "index_codecs": [_BYTES, _CRC],
        "index_location": location,
    }
    return [{"name": "sharding_indexed", "configuration": configuration}]


def _write(directory: str, arrays: dict[str, tuple[Any, dict[str, Any]]], **config: int) -> None:
    import tensorstore

    is_zarr3 = any("codecs" in metadata for _, metadata in arrays.values())
    entries = {}
    transaction = tensorstore.Transaction()  # all of it in one data file, as orbax merges the files of its processes
    for name, (array, metadata) in arrays.items():
        base = {"driver": "file", "path": f"{directory}/"}
        spec = {
            "driver": "zarr3" if is_zarr3 else "zarr",
            "kvstore": {"driver": "ocdbt", "base": base, "path": f"{name}/", "config": config},
            "metadata": metadata,
            "create": True,
            "store_data_equal_to_fill_value": True,
        }
        tensorstore.open(spec, transaction=transaction).result().write(array).result()
        leaf = {"value_type": "jax.Array", "skip_deserialize": False}
        entries[name] = {"key_metadata": [{"key": name, "key_type": 2}], "value_metadata": leaf}
    transaction.commit_sync()
    saved = {"tree_metadata": entries, "use_zarr3": is_zarr3, "store_array_data_equal_to_fill_value": True}
    Path(directory, "_METADATA").write_text(json.dumps(saved))


if __name__ == "__main__":
    main(*sys.argv[1:])

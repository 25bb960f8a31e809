"""Exports to Flax's files are what Flax restores, bit for bit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tensorkeep
from tensorkeep.errors import RefusedError

_ = ml_dtypes  # gives NumPy the names of its dtypes

DTYPES = [
    *("bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"),
    *("float16", "bfloat16", "float32", "float64", "complex64"),
    *("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu"),
]


def restored(path: Path) -> Any:
    from flax import serialization

    return serialization.msgpack_restore(path.read_bytes())


def test_flax_restores_every_dtype(tmp_path: Path) -> None:
    values = np.random.default_rng(0).integers(0, 2, 24).reshape(2, 3, 4)
    arrays = {f"params.layer {n}.ключ": values.astype(np.dtype(dtype)) for n, dtype in enumerate(DTYPES)}
    arrays |= {"scalar": np.array(1.5), "params.empty": np.zeros((0, 3), np.float32), "a..b": np.ones(1)}
    tensorkeep.save(arrays, tmp_path / "a.safetensors")

    done = tensorkeep.export(tmp_path / "a.safetensors", tmp_path / "a.msgpack")

    assert done.n_tensors == len(arrays)
    found = restored(tmp_path / "a.msgpack")
    for name, array in arrays.items():
        inner = found
        for key in name.split("."):
            inner = inner[key]
        assert (inner.dtype, inner.shape, inner.tobytes()) == (array.dtype, array.shape, array.tobytes())


def test_large_arrays_are_cut_into_chunks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tensorkeep.formats.msgpack._emit.CHUNK_NBYTES", 1_000_001)
    large = np.random.default_rng(0).integers(0, 2**16, 3_000_000, np.uint16).reshape(1_500, 2_000)
    tensorkeep.save({"large": large, "small": large[0]}, tmp_path / "a.safetensors")

    tensorkeep.export(tmp_path / "a.safetensors", tmp_path / "a.msgpack")

    assert b"__msgpack_chunked_array__" in (tmp_path / "a.msgpack").read_bytes()
    found = restored(tmp_path / "a.msgpack")
    assert np.array_equal(found["large"], large)
    assert np.array_equal(found["small"], large[0])


@pytest.mark.parametrize("names", [("a", "a.b"), ("a.b", "a"), ("a.b.c", "a.b")])
def test_a_tensor_within_another_is_refused(names: tuple[str, ...], tmp_path: Path) -> None:
    tensorkeep.save({name: np.ones(1) for name in names}, tmp_path / "a.safetensors")

    with pytest.raises(RefusedError, match="inside another"):
        tensorkeep.export(tmp_path / "a.safetensors", tmp_path / "a.msgpack")
    assert not (tmp_path / "a.msgpack").exists()


@pytest.mark.parametrize("name", [".a", "a.__msgpack_chunked_array__", ".".join("a" * 300)])
def test_names_that_flax_would_read_otherwise_are_refused(name: str, tmp_path: Path) -> None:
    tensorkeep.save({name: np.ones(1)}, tmp_path / "a.safetensors")

    with pytest.raises(RefusedError, match="rename"):
        tensorkeep.export(tmp_path / "a.safetensors", tmp_path / "a.msgpack")

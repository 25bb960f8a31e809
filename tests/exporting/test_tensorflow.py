"""Exports to TensorFlow's checkpoints are what TensorFlow reads, bit for bit."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import tensorkeep
from tensorkeep.errors import DestinationExistsError, DtypeError, RefusedError
from tests.support.formats.tensorflow_files import read_by_tensorflow, restored_by_tensorflow

_ = ml_dtypes  # gives NumPy the names of its dtypes

DTYPES = [
    *("bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"),
    *("float16", "bfloat16", "float32", "float64", "complex64", "float8_e4m3fn", "float8_e5m2"),
]


def test_tensorflow_reads_every_dtype(tmp_path: Path) -> None:
    values = np.random.default_rng(0).integers(0, 2, 24).reshape(2, 3, 4)
    arrays = {dtype: values.astype(np.dtype(dtype)) for dtype in DTYPES}
    arrays |= {"scalar": np.array(1.5), "model/empty": np.zeros((0, 3), np.float32), "слой.0/ключ": np.ones(1)}
    arrays |= {f"model/layers/{number}/kernel": np.full((2, 2), number, np.int32) for number in range(5_000)}
    arrays |= {"large": np.random.default_rng(1).random(700_000), "w/.ATTRIBUTES/VARIABLE_VALUE": np.ones(3)}
    tensorkeep.save(arrays, tmp_path / "a.safetensors")

    done = tensorkeep.export(tmp_path / "a.safetensors", tmp_path / "model.index")

    assert done.files == ("model.data-00000-of-00001", "model.index")
    assert done.n_tensors == len(arrays)
    assert (tmp_path / "model.index").stat().st_size > 2**17
    found = read_by_tensorflow(tmp_path / "model")
    assert found == {name: (array.dtype.name, array.shape, array.tobytes()) for name, array in arrays.items()}
    assert tensorkeep.verify(tmp_path / "model").is_whole
    with tensorkeep.open(tmp_path / "model") as opened:
        assert np.array_equal(opened["w"].load(), np.ones(3))


def test_the_beginning_of_the_names_is_a_target_too(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", w=np.arange(4) * (1 + 2j))

    done = tensorkeep.export(tmp_path / "a.npz", tmp_path / "ckpt-7", to="tensorflow")

    assert done.files == ("ckpt-7.data-00000-of-00001", "ckpt-7.index")
    again = tensorkeep.export(tmp_path / "a.npz", tmp_path / "ckpt-7", to="tensorflow", overwrite=True)
    assert again.files == ("ckpt-7.data-00000-of-00002", "ckpt-7.index")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.npz", *again.files]
    assert tensorkeep.verify(tmp_path / "ckpt-7").is_whole
    assert read_by_tensorflow(tmp_path / "ckpt-7")["w"][0] == "complex128"
    with tensorkeep.open(tmp_path / "ckpt-7") as opened:
        assert opened["w"].load().tolist() == [0, 1 + 2j, 2 + 4j, 3 + 6j]


def test_existing_files_are_kept(tmp_path: Path) -> None:
    tensorkeep.save({"w": np.ones(3)}, tmp_path / "a.safetensors")
    data = tmp_path / "model.data-00000-of-00001"
    data.write_bytes(b"mine")

    with pytest.raises(DestinationExistsError):
        tensorkeep.export(tmp_path / "a.safetensors", tmp_path / "model.index")
    assert data.read_bytes() == b"mine"
    tensorkeep.export(tmp_path / "a.safetensors", tmp_path / "model.index", overwrite=True)
    assert tensorkeep.load(tmp_path / "model")["w"].tolist() == [1, 1, 1]


@pytest.mark.parametrize("name", ["\0w", "_CHECKPOINTABLE_OBJECT_GRAPH"])
def test_keys_of_other_things_are_refused(name: str, tmp_path: Path) -> None:
    tensorkeep.save({name: np.ones(1)}, tmp_path / "a.safetensors")

    with pytest.raises(RefusedError, match="TensorFlow"):
        tensorkeep.export(tmp_path / "a.safetensors", tmp_path / "model.index")
    assert [path.name for path in tmp_path.iterdir()] == ["a.safetensors"]


def test_dtypes_that_tensorflow_lacks_are_refused(tmp_path: Path) -> None:
    tensorkeep.save({"w": np.ones(1).astype("float8_e8m0fnu")}, tmp_path / "a.safetensors")

    with pytest.raises(DtypeError, match="cast"):
        tensorkeep.export(tmp_path / "a.safetensors", tmp_path / "model.index")


def test_objects_are_restored(tmp_path: Path) -> None:
    state = {
        "layers.0.kernel": np.arange(6, dtype=np.float32).reshape(2, 3),
        "layers.0.bias": np.full(3, 7, np.float32),
        "layers.1.kernel": np.full((3, 1), 8, np.float32),
    }
    tensorkeep.save(state, tmp_path / "a.safetensors")

    done = tensorkeep.export(tmp_path / "a.safetensors", tmp_path / "model", to="tensorflow-objects")

    assert done.files == ("model.data-00000-of-00001", "model.index")
    found = restored_by_tensorflow(tmp_path / "model")
    assert found == {"kernel": [0, 1, 2, 3, 4, 5], "bias": [7] * 3, "other": [8] * 3, "alone": [7] * 3}
    assert tensorkeep.verify(tmp_path / "model").is_whole
    with tensorkeep.open(tmp_path / "model") as opened:
        assert sorted(opened) == sorted(state)
        assert not opened.metadata
        assert not opened.strings


@pytest.mark.parametrize("name", ["a/b", "a.b/c", "a..b", "слой", "x/.ATTRIBUTES/VARIABLE_VALUE"])
def test_names_of_objects_come_back_or_are_refused(name: str, tmp_path: Path) -> None:
    tensorkeep.save({name: np.ones(2)}, tmp_path / "a.safetensors")
    try:
        tensorkeep.export(tmp_path / "a.safetensors", tmp_path / "m", to="tensorflow-objects")
    except RefusedError:
        assert "ATTRIBUTES" in name
    else:
        assert list(tensorkeep.open(tmp_path / "m")) == [name]

"""Exports to HDF5: h5py reads every array, and Keras its weights."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import h5py
import ml_dtypes
import numpy as np
import pytest
import safetensors.numpy

import tensorkeep
from tensorkeep.errors import DtypeError, LimitError, RefusedError
from tests.support import SUPPORT

DTYPES = (
    *("bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"),
    *("float16", "float32", "float64"),
)


def arrays() -> dict[str, Any]:
    rng = np.random.default_rng(0)
    made = {f"layers/{name}": rng.integers(0, 2, (2, 3, 4)).astype(name) for name in DTYPES}
    made |= {"scalar": np.array(2.5), "a/empty": np.zeros((0, 3), "float32"), "größe/Ω.b": np.arange(7.0)}
    return made | {"large": rng.standard_normal(400_000), "half": np.arange(6).astype(ml_dtypes.bfloat16)}


@pytest.mark.parametrize(("key", "text"), [("", "a"), ("a\0b", "c"), ("b", "c\0d"), ("w@", "a")])
def test_metadata_that_readers_would_lose_are_refused(key: str, text: str, tmp_path: Path) -> None:
    tensorkeep.save({"w": np.ones(2)}, tmp_path / "a.safetensors", metadata={key: text})

    with pytest.raises(RefusedError, match=r"cannot have an entry of the metadata .*edit --unset"):
        tensorkeep.export(tmp_path / "a.safetensors", tmp_path / "a.h5")

    assert not (tmp_path / "a.h5").exists()


def test_h5py_reads_every_array(tmp_path: Path) -> None:
    metadata = {"note": "größer", "long": "x" * 100_000, "a@kind": "folder", "gone@kind": "nothing"}
    tensorkeep.save(arrays(), tmp_path / "a.safetensors", metadata=metadata)

    done = tensorkeep.export(tmp_path / "a.safetensors", tmp_path / "a.h5")

    assert done.n_tensors == len(arrays())
    with h5py.File(tmp_path / "a.h5") as file:
        for name, array in arrays().items():
            found = file[name][...]
            assert found.shape == array.shape
            assert found.tobytes() == array.tobytes()
            assert file[name].id.get_offset() is None or file[name].id.get_offset() % 64 == 0
            if name != "half":
                assert found.dtype == array.dtype
        assert file["half"].attrs["dtype"] == "bfloat16"
        assert dict(file.attrs) == {"note": "größer", "long": "x" * 100_000, "gone@kind": "nothing"}
        assert dict(file["a"].attrs) == {"kind": "folder"}
    assert tensorkeep.diff(tmp_path / "a.safetensors", tmp_path / "a.h5").changed == ()


def test_many_tensors_and_attributes_are_written(tmp_path: Path) -> None:
    many = {f"g{n % 7}/w{n}": np.full(2, n) for n in range(5_000)}
    metadata = {f"g{n % 7}/w{n}@note": str(n) for n in range(3_000)}
    tensorkeep.save(many, tmp_path / "a.safetensors", metadata=metadata)

    tensorkeep.export(tmp_path / "a.safetensors", tmp_path / "a.hdf5")

    with h5py.File(tmp_path / "a.hdf5") as file:
        assert all(np.array_equal(file[name], array) for name, array in many.items())
        assert file["g3/w2999"].attrs["note"] == "2999"


@pytest.mark.parametrize("names", [("a", "a/b"), ("a/b", "a"), ("a/b/c", "a/b")])
def test_a_tensor_within_another_is_refused(names: tuple[str, ...], tmp_path: Path) -> None:
    tensorkeep.save({name: np.ones(1) for name in names}, tmp_path / "a.safetensors")

    with pytest.raises(RefusedError, match="folder of others"):
        tensorkeep.export(tmp_path / "a.safetensors", tmp_path / "a.h5")
    assert not (tmp_path / "a.h5").exists()


@pytest.mark.parametrize("name", ["/a", "a/", "a//b", "./a", "a/./b", "a\0b", ""])
def test_names_that_hdf5_would_read_otherwise_are_refused(name: str, tmp_path: Path) -> None:
    tensorkeep.save({name: np.ones(1)}, tmp_path / "a.safetensors")

    with pytest.raises(RefusedError, match="rename"):
        tensorkeep.export(tmp_path / "a.safetensors", tmp_path / "a.h5")


def test_what_hdf5_cannot_hold_is_refused(tmp_path: Path) -> None:
    tensorkeep.save({"a": np.ones(1, np.complex64)}, tmp_path / "a.safetensors")
    with pytest.raises(DtypeError):
        tensorkeep.export(tmp_path / "a.safetensors", tmp_path / "a.h5")
    safetensors.numpy.save_file({"a" * 40_000: np.ones(1)}, tmp_path / "a.safetensors")
    with pytest.raises(RefusedError, match="cannot hold the names"):
        tensorkeep.export(tmp_path / "a.safetensors", tmp_path / "a.h5")
    safetensors.numpy.save_file({"a": np.ones(1)}, tmp_path / "a.safetensors", {"k" * 40_000: "text"})
    with pytest.raises(LimitError, match="too long"):
        tensorkeep.export(tmp_path / "a.safetensors", tmp_path / "a.h5")


LOAD = """
import sys
from pathlib import Path

sys.path.insert(0, sys.argv[1])
import keras_models
import numpy as np

folder = Path(sys.argv[2])
for name in ("trained", "recurrent", "quantized"):
    model = getattr(keras_models, name)()
    model.load_weights(folder / f"{name}.weights.h5")
    keras_models.save(folder, f"loaded.{name}", keras_models.all_weights(model))
"""


def test_keras_loads_what_was_converted_and_exported(tmp_path: Path) -> None:
    written, exported = tmp_path / "written", tmp_path / "exported"
    written.mkdir()
    exported.mkdir()
    models = SUPPORT / "formats" / "keras_models.py"
    subprocess.run([sys.executable, models, written], check=True, capture_output=True)
    for name in ("trained", "recurrent", "quantized"):
        tensorkeep.convert(written / f"{name}.keras", tmp_path / f"{name}.safetensors")
        tensorkeep.export(tmp_path / f"{name}.safetensors", exported / f"{name}.weights.h5")
        assert sorted(tensorkeep.open(exported / f"{name}.weights.h5")) == sorted(
            tensorkeep.open(written / f"{name}.keras")
        )

    subprocess.run([sys.executable, "-c", LOAD, models.parent, exported], check=True, capture_output=True)

    for name in ("trained", "recurrent", "quantized"):
        with np.load(written / f"{name}.weights.h5.npz") as wanted, np.load(exported / f"loaded.{name}.npz") as found:
            # Keras numbers layers anew in each process, but their order is the same.
            for (key, value), (other_key, other) in zip(wanted.items(), found.items(), strict=True):
                assert key.rpartition("/")[2] == other_key.rpartition("/")[2]
                assert np.array_equal(value, other), key

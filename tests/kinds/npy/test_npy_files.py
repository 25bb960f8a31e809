"""`.npy` and `.npz` as kinds: every verb works for them, over HTTP too, and nothing in them is run."""

from __future__ import annotations

import io
import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest
import torch

import tensorkeep
from tensorkeep.errors import DtypeError, TensorNotFoundError, UnsafeError, UnsupportedError
from tensorkeep.kinds import FlatFile
from tests.support.remote.fault_server import FaultServer

ARRAYS: dict[str, npt.NDArray[Any]] = {
    "layer/w": np.arange(60, dtype=">f4").reshape(5, 12),
    "fortran": np.asfortranarray(np.arange(24, dtype="<i8").reshape(2, 3, 4)),
    "both": np.asfortranarray(np.arange(12, dtype=">c8").reshape(3, 4)),
    "scalar": np.array(7, np.uint16),
    "empty": np.zeros((0, 3), np.float16),
    "long": np.arange(200_000, dtype=np.float32),
}
NAMES = ["stored", "deflated"]


@pytest.fixture(params=NAMES)
def path(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    save: Callable[..., None] = np.savez if request.param == "stored" else np.savez_compressed
    save(tmp_path / "a.npz", **ARRAYS)
    return tmp_path / "a.npz"


def flat(target: Any) -> FlatFile:
    file = tensorkeep.open(target)
    assert isinstance(file, FlatFile)
    return file


def check_all(file: Any) -> None:
    assert list(file) == list(ARRAYS)
    for name, array in ARRAYS.items():
        assert file[name].shape == array.shape
        np.testing.assert_array_equal(file[name][...], array, strict=False)
        if array.ndim and array.size:
            np.testing.assert_array_equal(file[name][1:, ...], array[1:])
            np.testing.assert_array_equal(file[name][..., ::2], array[..., ::2])
    for name, array in file.load().items():
        np.testing.assert_array_equal(array, ARRAYS[name])
        assert array.dtype == ARRAYS[name].dtype.newbyteorder("=")


def test_opened_from_a_path_bytes_or_a_server(path: Path) -> None:
    with tensorkeep.open(path) as file:
        check_all(file)
    with tensorkeep.open(path.read_bytes()) as file:
        check_all(file)
    with FaultServer({"a.npz": path.read_bytes()}) as server, tensorkeep.open(f"{server.url}a.npz") as file:
        check_all(file)


def test_loaded_for_torch(path: Path) -> None:
    tensors = tensorkeep.load(path, framework="torch")

    assert all(np.array_equal(tensors[name].numpy(), array) for name, array in ARRAYS.items())


def test_converted_and_compared(path: Path, tmp_path: Path) -> None:
    tensorkeep.convert(path, tmp_path / "a.safetensors")

    difference = tensorkeep.diff(path, tmp_path / "a.safetensors")
    assert difference.n_equal == len(ARRAYS)
    assert not (difference.only_in_a)
    assert not (difference.only_in_b)
    assert not (difference.changed)


def test_verified_by_the_archives_checksums(path: Path, tmp_path: Path) -> None:
    whole = tensorkeep.verify(path)
    assert (whole.is_whole, whole.n_checked, whole.n_unprotected) == (True, len(ARRAYS), 0)

    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    (tmp_path / "bad.npz").write_bytes(data)
    assert [finding.tensor for finding in tensorkeep.verify(tmp_path / "bad.npz").findings] == ["long"]


def test_damage_to_compressed_bytes_is_damage_to_the_tensor(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    np.savez_compressed(path, w=np.random.default_rng(0).random((100, 64)))
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)

    (finding,) = tensorkeep.verify(path).findings

    assert (finding.kind, finding.tensor) == ("data", "w")


def test_a_single_array(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.asfortranarray(np.arange(6, dtype=">i2").reshape(2, 3)))

    with tensorkeep.open(tmp_path / "a.npy") as file:
        assert file["tensor"][:, 1].tolist() == [1, 4]
    assert tensorkeep.verify(tmp_path / "a.npy").n_unprotected == 1
    assert tensorkeep.scan(tmp_path / "a.npy").is_clean


def test_fetched(path: Path, tmp_path: Path) -> None:
    with FaultServer({"a.npz": path.read_bytes()}) as server:
        tensorkeep.fetch(f"{server.url}a.npz", tmp_path / "fetched")

    assert (tmp_path / "fetched" / "a.npz").read_bytes() == path.read_bytes()


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_a_dtype_that_numpy_forgot_is_given_by_name(tmp_path: Path, save: Callable[..., None]) -> None:
    weights = np.arange(6).reshape(2, 3).astype(ml_dtypes.bfloat16)
    save(tmp_path / "a.npz", w=np.asfortranarray(weights), text=np.array(["a"]), x=np.ones(2))
    file = flat(tmp_path / "a.npz")
    assert list(file) == ["x"]
    assert set(file.unknowns) == {"w"}
    assert file.strings["text"].load().tolist() == ["a"]

    named = file.with_dtypes({"w": "bfloat16"})

    assert named["w"].dtype == "BF16"
    assert named.load()["w"].tobytes() == weights.tobytes()
    assert not named.unknowns
    assert set(named.strings) == {"text"}
    with pytest.raises(DtypeError):
        file.with_dtypes({"w": "float32"})
    with pytest.raises(TensorNotFoundError):
        file.with_dtypes({"text": "float32"})


def test_many_arrays_on_a_server_are_opened_in_few_requests(tmp_path: Path) -> None:
    """What lies between headers is read with them, 16 MiB at a time: 100,000 of 256 bytes take 12 requests."""
    n_arrays = 20_000
    np.savez(tmp_path / "a.npz", **{f"layers.{number}": np.full(100, number) for number in range(n_arrays)})

    with FaultServer({"a.npz": (tmp_path / "a.npz").read_bytes()}) as server:
        with tensorkeep.open(f"{server.url}a.npz") as file:
            n_opening = len(server.requests)
            assert file["layers.17777"][3:5].tolist() == [17777, 17777]
        assert len(file) == n_arrays
        assert n_opening <= 12
        assert len(server.requests) == n_opening + 1


def test_objects_are_listed_and_never_run(tmp_path: Path) -> None:
    class Evil:
        def __reduce__(self) -> tuple[Any, ...]:
            return Path.touch, (tmp_path / "ran",)

    buffer = io.BytesIO()
    np.savez(buffer, x=np.ones(2), o=np.array([Evil()], dtype=object))

    with tensorkeep.open(buffer.getvalue()) as file:
        assert list(file) == ["x"]
        assert "never run" in str(file.unknowns["o"])
    with pytest.raises(UnsafeError):
        tensorkeep.open(buffer.getvalue(), strict=True)
    (tmp_path / "a.npz").write_bytes(buffer.getvalue())
    assert not tensorkeep.scan(tmp_path / "a.npz").is_clean
    assert not (tmp_path / "ran").exists()


def test_an_archive_whose_first_member_is_no_array(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        archive.writestr("readme.txt", "what this is")
        with archive.open("x.npy", "w") as member:
            np.lib.format.write_array(member, np.arange(3.0))
    assert np.load(tmp_path / "a.npz")["x"].tolist() == [0, 1, 2]

    with tensorkeep.open(tmp_path / "a.npz") as file:
        assert file["x"].load().tolist() == [0, 1, 2]
        assert list(file.unknowns) == ["readme.txt"]


def test_an_archive_without_arrays(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz")
    assert list(np.load(tmp_path / "a.npz")) == []

    with tensorkeep.open(tmp_path / "a.npz") as file:
        assert dict(file) == {}


def test_torchs_archive_of_that_name_is_torchs(tmp_path: Path) -> None:
    torch.save({"w": torch.ones(2)}, tmp_path / "a.npz")

    assert tensorkeep.load(tmp_path / "a.npz")["w"].tolist() == [1, 1]


def test_a_zip_archive_of_other_files_is_called_that(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("a.npz", b"")

    with pytest.raises(UnsupportedError, match=r"that torch\.save did not write.*a\.npz.*unpack it"):
        tensorkeep.open(tmp_path / "a.zip")


def test_a_lazy_array_holds_none_of_its_stored_bytes(tmp_path: Path) -> None:
    np.savez_compressed(tmp_path / "a.npz", a=np.random.default_rng(0).random(100))
    stored = (tmp_path / "a.npz").read_bytes()

    with flat(tmp_path / "a.npz") as file:
        assert stored[200:300] not in pickle.dumps(file["a"])

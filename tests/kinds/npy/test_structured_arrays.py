"""Fields of structured arrays are tensors, also of packed records, whose numbers have no common multiple."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest

import tensorkeep
from tests.support.peak_memory import with_peak

PACKED = np.dtype([
    ("x", "<f4"),
    ("y", ">f8"),
    ("flag", "u1"),
    ("inner", [("q", "<i2", (3,)), ("r", ">c16")], (2,)),
    ("raw", "V2"),
])
SHAPES = [(), (0,), (5,), (3, 4, 5), (1, 30_000), (300, 150)]


def of(shape: tuple[int, ...], order: Any) -> npt.NDArray[Any]:
    nbytes = int(np.prod(shape)) * PACKED.itemsize
    records = np.random.default_rng(3).integers(0, 255, nbytes, np.uint8).view(PACKED)
    return records.reshape(shape, order=order)


def fields_of(array: npt.NDArray[Any]) -> dict[str, Any]:
    """Return the fields as NumPy has them, by the names of the tensors."""
    return {
        "tensor.x": array["x"],
        "tensor.y": array["y"],
        "tensor.flag": array["flag"],
        "tensor.inner.q": array["inner"]["q"],
        "tensor.inner.r": array["inner"]["r"],
        "tensor.raw": array["raw"].view(ml_dtypes.bfloat16),
    }


def bits(array: Any) -> bytes:
    native: bytes = array.astype(array.dtype.newbyteorder("=")).tobytes()
    return native


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("save", [np.save, np.savez, np.savez_compressed])
def test_fields_of_packed_records(tmp_path: Path, save: Any, order: str, shape: tuple[int, ...]) -> None:
    array = of(shape, order)
    path = tmp_path / ("a.npy" if save is np.save else "a.npz")
    save(path, array) if save is np.save else save(path, tensor=array)

    with tensorkeep.open(path) as unnamed:
        file = unnamed.with_dtypes({"tensor.raw": "bfloat16"})
        for name, field in fields_of(array).items():
            assert file[name].shape == field.shape
            assert bits(file[name][...]) == bits(field)
            if field.size and field.ndim:
                assert bits(file[name][-1]) == bits(field[-1])
                assert bits(file[name][..., ::2]) == bits(field[..., ::2])
                assert bits(file[name][[0, -1]]) == bits(field[[0, -1]])
        assert file.keys() == fields_of(array).keys()


def test_packed_records_are_converted_and_verified(tmp_path: Path) -> None:
    array = np.array([(1.5, 2.5), (3.5, 4.5), (5.5, 6.5)], [("x", "f4"), ("y", "f8")])
    np.savez(tmp_path / "a.npz", r=array)

    tensorkeep.convert(tmp_path / "a.npz", tmp_path / "a.safetensors")

    assert tensorkeep.load(tmp_path / "a.safetensors")["r.y"].tolist() == [2.5, 4.5, 6.5]
    assert tensorkeep.verify(tmp_path / "a.npz").n_checked == 2


def test_one_of_many_records_is_read_alone(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.ones(1_000_000, [("x", "f4"), ("y", "f8")]))

    def read() -> float:
        with tensorkeep.open(tmp_path / "a.npy") as file:
            return float(file["tensor.y"][777_777])

    value, peak = with_peak(read)

    assert value == 1
    assert peak < 5_000_000

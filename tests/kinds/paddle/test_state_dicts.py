"""Paddle's pickles give what `paddle.load(return_numpy=True)` gives, except that bfloat16 is called by its name."""

from __future__ import annotations

import pickle
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tensorkeep
from tensorkeep.errors import TensorkeepError
from tests.support.formats.paddle_files import loaded_by_paddle, written_by_paddle

FILES = (
    *("protocol2.pdparams", "protocol3.pdparams", "protocol4.pdparams", "bfloat16.pdparams", "dtypes.pdparams"),
    *("optimizer.pdopt", "nested.pdparams", "nested_bfloat16.pdparams"),
    *("tensor.pdtensor", "dense.pdtensor", "dense2.pdtensor"),
)


def as_stored(array: Any) -> Any:
    """Return an array as Paddle stores it: bfloat16 is uint16."""
    return array.view(np.uint16) if array.dtype.name == "bfloat16" else array


@pytest.mark.parametrize("name", FILES)
def test_tensors_are_those_that_paddle_loads(name: str) -> None:
    expected = loaded_by_paddle(name)

    with tensorkeep.open(written_by_paddle() / name) as file:
        assert sorted(file) == sorted(expected)
        assert not file.unknowns
        for key, array in expected.items():
            found = as_stored(file[key].load())
            assert (found.dtype, found.shape) == (array.dtype, array.shape)
            assert found.tobytes() == array.tobytes()
            assert file[key].dtype == ("BF16" if array.dtype == np.uint16 else file[key].dtype)


@pytest.mark.parametrize("name", FILES)
def test_scan_calls_them_clean(name: str) -> None:
    report = tensorkeep.scan(written_by_paddle() / name)

    assert [file.findings for file in report.files] == [()]


def test_slices_are_read() -> None:
    expected = loaded_by_paddle("bfloat16.pdparams")["embedding.weight"]

    with tensorkeep.open(written_by_paddle() / "bfloat16.pdparams") as file:
        assert np.array_equal(as_stored(file["embedding.weight"][3:7, ::2]), expected[3:7, ::2])


def test_the_state_of_a_schedule_is_loaded() -> None:
    state = tensorkeep.load(written_by_paddle() / "optimizer.pdopt")

    assert state["LR_Scheduler"]["last_epoch"] == 1
    assert "StructuredToParameterName@@" not in state


def test_names_in_the_program_are_metadata() -> None:
    with tensorkeep.open(written_by_paddle() / "protocol4.pdparams") as file:
        assert '"linear.weight":"linear_0.w_0"' in file.metadata["StructuredToParameterName@@"]


def test_a_conversion_keeps_tensors_and_metadata(tmp_path: Path) -> None:
    tensorkeep.convert(written_by_paddle() / "bfloat16.pdparams", tmp_path / "converted")

    with tensorkeep.open(tmp_path / "converted") as file:
        assert {file[name].dtype for name in file} == {"BF16"}
        assert "StructuredToParameterName@@" in file.metadata


def test_a_directory_opens_the_parameters_and_not_the_optimizer(tmp_path: Path) -> None:
    shutil.copy(written_by_paddle() / "protocol4.pdparams", tmp_path / "model.pdparams")
    shutil.copy(written_by_paddle() / "optimizer.pdopt", tmp_path / "model.pdopt")

    with tensorkeep.open(tmp_path) as file:
        assert "linear.weight" in file


def test_a_program_of_a_static_graph_is_known_by_its_suffix(tmp_path: Path) -> None:
    stored = {"w": np.array([0x3F80], np.uint16)}
    for name in ("w.pdparams", "w.pkl"):
        (tmp_path / name).write_bytes(pickle.dumps(stored, 4))

    assert tensorkeep.load(tmp_path / "w.pdparams")["w"].dtype.name == "bfloat16"
    assert tensorkeep.load(tmp_path / "w.pkl")["w"].dtype == np.uint16


def split(**changes: Any) -> dict[str, Any]:
    """Return a state as Paddle pickles it with protocols 2 and 3, with a parameter that counts as large."""
    whole = np.arange(12, dtype=np.float32)
    parts = {f"w@@.{number}": whole[5 * number : 5 * number + 5] for number in range(3)}
    description = {"OriginShape": (3, 4), "slices": list(parts)} | changes
    return {"b": np.ones(2), **parts, "UnpackBigParamInfor@@": {"w": description}}


def test_parts_of_large_parameters_are_joined(tmp_path: Path) -> None:
    path = tmp_path / "large.pdparams"
    path.write_bytes(pickle.dumps(split(), 3))

    loaded = tensorkeep.load(path)

    assert list(loaded) == ["b", "w"]
    assert np.array_equal(loaded["w"], np.arange(12, dtype=np.float32).reshape(3, 4))


@pytest.mark.parametrize(
    ("state", "message"),
    [
        (split(OriginShape=(4, 4)), "do not fill its shape"),
        (split(OriginShape=(-3, -4)), "not split as Paddle does"),
        (split(slices=[]), "not split as Paddle does"),
        (split(slices=["w@@.0", "w@@.9"]), "is missing"),
        (split(slices=["w@@.0", "w@@.0"]), "is missing"),
        (split(slices=["w@@.0", "w@@.1", "b"]), "differ in dtype"),
        (split() | {"w": np.ones(2)}, "as a whole too"),
        ({"UnpackBigParamInfor@@": []}, "not described as Paddle does"),
        ({"UnpackBigParamInfor@@": {"w": 1}}, "not split as Paddle does"),
    ],
)
def test_parts_that_do_not_fit_are_refused(state: Any, message: str, tmp_path: Path) -> None:
    path = tmp_path / "large.pdparams"
    path.write_bytes(pickle.dumps(state, 3))

    with pytest.raises(TensorkeepError, match=message):
        tensorkeep.open(path)


def test_a_part_is_not_repeated_to_make_much_of_little(tmp_path: Path) -> None:
    row = np.zeros(10)
    state = {str(number): row for number in range(9)}
    state["UnpackBigParamInfor@@"] = {"w": {"OriginShape": (90,), "slices": list(state)}}  # type: ignore[assignment]
    path = tmp_path / "large.pdparams"
    path.write_bytes(pickle.dumps(state, 3))

    with pytest.raises(TensorkeepError, match="used twice"):
        tensorkeep.open(path)

"""Checkpoints whose files are only whole together: an index with data files, a model with weights beside it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import tensorkeep
from tensorkeep.errors import DestinationExistsError, IntegrityError, SourceMissingError, UnsupportedError
from tensorkeep.server import Server
from tests.support.formats.tensorflow_files import written_by_tensorflow
from tests.support.remote.fault_server import FaultServer


def files_below(directory: Path) -> dict[str, bytes]:
    return {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


@pytest.fixture
def checkpoint() -> dict[str, bytes]:
    return {name: data for name, data in files_below(written_by_tensorflow()).items() if name.startswith("sharded.")}


def test_a_saved_model_comes_with_its_program(tmp_path: Path) -> None:
    with FaultServer(files_below(written_by_tensorflow() / "module")) as server:
        there = tensorkeep.fetch(f"{server.url}saved_model.pb", tmp_path / "fetched")

    assert Path(there).parent == tmp_path / "fetched" / "variables"
    assert (tmp_path / "fetched" / "saved_model.pb").is_file()
    assert tensorkeep.diff(tmp_path / "fetched", written_by_tensorflow() / "module").is_equal


def test_what_the_names_begin_with_is_opened_and_fetched(checkpoint: dict[str, bytes], tmp_path: Path) -> None:
    with FaultServer(checkpoint) as server:
        with tensorkeep.open(f"{server.url}sharded") as opened:
            names = sorted(opened)
        there = tensorkeep.fetch(f"{server.url}sharded", tmp_path / "fetched")
        with pytest.raises(SourceMissingError, match="no checkpoint in the directory"):
            tensorkeep.open(f"{server.url}other")

    assert sorted(tensorkeep.load(there)) == names


def test_a_server_that_lists_its_files_need_not_know_what_their_names_begin_with(
    checkpoint: dict[str, bytes], tmp_path: Path
) -> None:
    for name, data in checkpoint.items():
        (tmp_path / name).write_bytes(data)
    with Server(tmp_path, port=0) as server:
        with tensorkeep.open(f"{server.url}sharded") as opened:
            assert tensorkeep.diff(opened, tmp_path / "sharded").is_equal
        with pytest.raises(SourceMissingError, match="no such file"):
            tensorkeep.open(f"{server.url}other")


def test_damage_is_found_and_nothing_is_replaced(checkpoint: dict[str, bytes], tmp_path: Path) -> None:
    name = next(name for name in checkpoint if ".data-" in name)
    damaged = checkpoint | {name: bytes([checkpoint[name][0] ^ 1]) + checkpoint[name][1:]}
    with FaultServer(damaged) as server:
        with pytest.raises(IntegrityError, match="not what was saved"):
            tensorkeep.fetch(f"{server.url}sharded.index", tmp_path / "fetched")
        assert not (tmp_path / "fetched").exists()

        server.files[name] = checkpoint[name]
        there = tensorkeep.fetch(f"{server.url}sharded.index", tmp_path / "fetched")
    assert tensorkeep.verify(there).is_whole


def test_a_new_version_replaces_the_old_one(tmp_path: Path) -> None:
    old, new = ({"w.onnx": _model(value), "w.data": np.full(4, value, "f4").tobytes()} for value in (1, 2))
    with FaultServer(old) as server:
        tensorkeep.fetch(f"{server.url}w.onnx", tmp_path / "fetched")
        server.files.update(new)
        there = tensorkeep.fetch(f"{server.url}w.onnx", tmp_path / "fetched")

        assert tensorkeep.load(there)["w"].tolist() == [2] * 4
        (tmp_path / "fetched" / "w.onnx").write_bytes(_model(3))
        with pytest.raises(DestinationExistsError):
            tensorkeep.fetch(f"{server.url}w.onnx", tmp_path / "fetched")


def test_several_files_go_to_a_directory(tmp_path: Path) -> None:
    with FaultServer({"w.onnx": _model(1), "w.data": np.full(4, 1, "f4").tobytes()}) as server:  # noqa: SIM117
        with pytest.raises(UnsupportedError, match="several files go to a directory"):
            tensorkeep.fetch(f"{server.url}w.onnx", tmp_path / "mine.onnx")


def _model(version: int) -> bytes:
    from onnx import helper, numpy_helper
    from onnx.external_data_helper import set_external_data

    tensor = numpy_helper.from_array(np.full(4, version, "f4"), "w")
    set_external_data(tensor, "w.data")
    tensor.ClearField("raw_data")
    graph = helper.make_graph([], "net", [], [], initializer=[tensor])
    return helper.make_model(graph, model_version=version).SerializeToString()

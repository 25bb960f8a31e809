"""Paddle's streams of tensors, with the names of the program beside them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

import tensorkeep
from tensorkeep.errors import FormatError, IntegrityError, TensorkeepError, UnsafeError
from tests.support.formats.paddle_files import loaded_by_paddle, written_by_paddle
from tests.support.remote.fault_server import FaultServer

MODELS = ("inference_json.pdiparams", "inference_pdmodel.pdiparams")


def copied(name: str, directory: Path) -> Path:
    """Copy a model: its parameters and what is beside them."""
    stem = name.removesuffix(".pdiparams")
    for path in written_by_paddle().iterdir():
        if path.name.partition(".")[0] == stem and path.suffix != ".npz":
            shutil.copy(path, directory / path.name)
    return directory / name


@pytest.mark.parametrize("name", MODELS)
def test_parameters_have_the_names_and_values_of_the_model(name: str) -> None:
    expected = loaded_by_paddle(name)

    with tensorkeep.open(written_by_paddle() / name) as file:
        assert sorted(file) == sorted(expected)
        for key, array in expected.items():
            assert np.array_equal(file[key].load(), array)


@pytest.mark.parametrize("name", MODELS)
def test_parameters_are_fetched_with_their_program(name: str, tmp_path: Path) -> None:
    path = copied(name, tmp_path)
    with FaultServer({file.name: file.read_bytes() for file in tmp_path.iterdir()}) as server:
        there = tensorkeep.fetch(f"{server.url}{name}", tmp_path / "fetched")

    assert tensorkeep.diff(there, path).is_equal


@pytest.mark.parametrize("name", MODELS)
def test_a_directory_and_a_program_open_their_parameters(name: str, tmp_path: Path) -> None:
    path = copied(name, tmp_path)

    for target in (tmp_path, *tmp_path.glob("*.pdmodel")):
        with tensorkeep.open(target) as file:
            assert file.path == str(path)
            assert len(file) == 7


@pytest.mark.parametrize("name", MODELS)
def test_without_a_program_tensors_are_numbered(name: str) -> None:
    data = (written_by_paddle() / name).read_bytes()

    assert list(tensorkeep.load(data)) == [str(number) for number in range(7)]


def test_one_tensor_alone_is_called_so() -> None:
    loaded = tensorkeep.load(written_by_paddle() / "one.pdtensor")

    assert list(loaded) == ["tensor"]


@pytest.mark.parametrize("name", MODELS)
def test_scan_calls_them_clean(name: str) -> None:
    assert [file.findings for file in tensorkeep.scan(written_by_paddle() / name).files] == [()]


def test_programs_are_recognized_wherever_their_mark_is(tmp_path: Path) -> None:
    other = {"program": {"regions": [["x" * 100_000], {"ops": [{"#": "1.new"}]}]}, "base_code": {"magic": "pir"}}
    (tmp_path / "a.json").write_text(json.dumps(other))
    assert tensorkeep.scan(tmp_path / "a.json").verdict == "unknown"
    (tmp_path / "a.json").write_text('{"program":' + "[" * 100_000)
    assert tensorkeep.scan(tmp_path / "a.json").verdict == "unreadable"


def test_a_program_of_another_model_is_refused(tmp_path: Path) -> None:
    path = copied("inference_json.pdiparams", tmp_path)
    program = json.loads(path.with_suffix(".json").read_bytes())
    operations = program["program"]["regions"][0]["blocks"][0]["ops"]

    operations[0]["O"]["TT"]["D"][1] = [4, 10]
    path.with_suffix(".json").write_text(json.dumps(program))
    with pytest.raises(IntegrityError, match=r"\[4, 10\] in the program"):
        tensorkeep.open(path)

    del operations[0]
    path.with_suffix(".json").write_text(json.dumps(program))
    with pytest.raises(IntegrityError, match="expected 6 tensors"):
        tensorkeep.open(path)


@pytest.mark.parametrize(
    "text", [b"", b"{}", b"[" * 100_000, b'{"base_code": {"magic": "pir"}, "program": 1}', b"\xff"]
)
def test_a_program_that_is_none_is_refused(text: bytes, tmp_path: Path) -> None:
    path = copied("inference_json.pdiparams", tmp_path)
    path.with_suffix(".json").write_bytes(text)

    with pytest.raises(FormatError, match="not one of Paddle's"):
        tensorkeep.open(path)


def test_a_pickle_of_names_that_runs_something_is_refused(tmp_path: Path) -> None:
    path = copied("inference_pdmodel.pdiparams", tmp_path)
    (tmp_path / f"{path.name}.info").write_bytes(b"\x80\x02cos\nsystem\nX\x02\x00\x00\x00ls\x85R.")

    with pytest.raises(UnsafeError, match=r"os\.system"):
        tensorkeep.open(path)


def test_a_cut_file_is_an_error_at_every_byte(tmp_path: Path) -> None:
    data = (written_by_paddle() / "inference_json.pdiparams").read_bytes()
    path = tmp_path / "cut.pdiparams"
    whole = 0
    for stop in range(1, len(data)):
        path.write_bytes(data[:stop])
        try:
            with tensorkeep.open(path) as file:
                whole += len(file)
        except TensorkeepError:
            pass
    assert whole == sum(range(7))  # where one tensor ends and the next begins


def test_flipped_bits_give_errors_or_tensors(tmp_path: Path) -> None:
    data = bytearray((written_by_paddle() / "inference_json.pdiparams").read_bytes())
    path = tmp_path / "flipped.pdiparams"
    for place in range(8 * len(data)):
        data[place // 8] ^= 1 << place % 8
        path.write_bytes(data)
        try:
            with tensorkeep.open(path) as file:
                file.load()
        except TensorkeepError:
            pass
        data[place // 8] ^= 1 << place % 8


def test_small_tensors_on_a_server_take_few_requests(tmp_path: Path) -> None:
    path = copied("inference_json.pdiparams", tmp_path)
    files = {beside.name: beside.read_bytes() for beside in tmp_path.iterdir()}
    with FaultServer(files) as server:
        with tensorkeep.open(f"{server.url}{path.name}") as file:
            assert np.array_equal(file["linear_0.w_0"][1:], tensorkeep.load(path)["linear_0.w_0"][1:])
        assert len(server.requests) <= 6

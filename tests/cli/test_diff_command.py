"""`tensorkeep diff`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import huggingface_hub
import ml_dtypes
import numpy as np
import pytest
import safetensors.numpy
import torch

import tensorkeep
from tensorkeep.cli import main

Tensors = dict[str, np.ndarray]


def tensors_of() -> Tensors:
    return {f"layers.{i}.weight": np.arange(20, dtype=np.float32).reshape(4, 5) + 1 for i in range(4)}


@pytest.fixture
def path_a(tmp_path: Path) -> Path:
    tensorkeep.save_checkpoint(tensors_of(), tmp_path / "a", max_shard_size="100B")
    return tmp_path / "a"


@pytest.fixture
def save_b(tmp_path: Path) -> Any:
    def save_b(**changes: np.ndarray | None) -> Path:
        tensors = tensors_of() | {name.replace("_", "."): array for name, array in changes.items()}
        kept = {name: array for name, array in tensors.items() if array is not None}
        safetensors.numpy.save_file(kept, tmp_path / "b.safetensors")
        return tmp_path / "b.safetensors"

    return save_b


def diff(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, list[str]]:
    code = main(["diff", *map(str, arguments)])
    captured = capsys.readouterr()
    assert captured.err == ""
    return code, captured.out.splitlines()


def test_equal_checkpoints_in_other_files(run: Any, path_a: Path, tmp_path: Path) -> None:
    huggingface_hub.save_torch_state_dict(
        {name: torch.from_numpy(array) for name, array in tensors_of().items()}, tmp_path, max_shard_size=200
    )

    done = run("diff", str(path_a), str(tmp_path))

    assert (done.returncode, done.stdout, done.stderr) == (0, "equal: 4 tensors\n", "")


def test_only_what_differs_is_shown(capsys: pytest.CaptureFixture[str], path_a: Path, save_b: Any) -> None:
    changed = tensors_of()["layers.1.weight"]
    changed[2, 3] += 0.5
    changed[0, 0] = np.nan
    changed[0, 1] = np.inf
    path_b = save_b(
        layers_1_weight=changed, layers_2_weight=np.ones((2, 5), np.float32), layers_3_weight=None, new=changed
    )

    code, lines = diff(capsys, path_a, path_b)

    assert code == 1
    assert [line.split() for line in lines[:3]] == [
        ["name", "dtype", "shape", "different", "share", "max", "abs", "max", "rel", "NaN", "Inf"],
        [
            *("layers.1.weight", "F32", "[4,", "5]", "3", "15.0", "%"),
            *lines[1].split()[7:-6],
            *["0", "->", "1", "0", "->", "1"],
        ],
        ["layers.2.weight", "F32", "[4,", "5]", "->", "[2,", "5]"],
    ]
    assert lines[3:] == [
        "",
        f"only in {path_a}",
        "  layers.3.weight  F32  [4, 5]",
        "",
        f"only in {path_b}",
        "  new  F32  [4, 5]",
        "",
        f"different: 2 tensors differ, 1 only in {path_a}, 1 only in {path_b}, 1 equal",
    ]


def test_json(capsys: pytest.CaptureFixture[str], path_a: Path, save_b: Any) -> None:
    changed = tensors_of()["layers.1.weight"]
    changed[0, 3] = 5
    path_b = save_b(layers_1_weight=changed, layers_3_weight=None, new=np.ones(2))

    code, lines = diff(capsys, "--json", path_a, path_b)

    assert code == 1
    assert json.loads("\n".join(lines)) == {
        "a": str(path_a),
        "b": str(path_b),
        "is_equal": False,
        "with_values": True,
        "n_equal": 2,
        "n_unread": 0,
        "only_in_a": [{"name": "layers.3.weight", "dtype": "F32", "shape": [4, 5]}],
        "only_in_b": [{"name": "new", "dtype": "F64", "shape": [2]}],
        "changed": [
            {
                "name": "layers.1.weight",
                "dtype": ["F32", "F32"],
                "shape": [[4, 5], [4, 5]],
                "is_bitwise_equal": False,
                "n_different": 1,
                "max_abs": 1.0,
                "max_rel": pytest.approx(0.2),
                "norm": 1.0,
                "relative": pytest.approx(1 / np.linalg.norm(tensors_of()["layers.1.weight"])),
                "n_nan": [0, 0],
                "n_inf": [0, 0],
                "problem": None,
            }
        ],
        "ties": [],
        "data": [],
        "not_compared_in_a": [],
        "not_compared_in_b": [],
    }


def test_what_is_not_compared_is_said(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=np.ones(2), w=np.ones(3, ml_dtypes.bfloat16), words=np.array(["a"]))

    status, lines = diff(capsys, tmp_path / "a.npz", tmp_path / "a.npz")

    assert status == 0
    assert lines[0].endswith("a.npz, as they are not tensors: words, w")
    assert lines[-1] == "equal: 1 tensor"


def test_json_has_no_numbers_that_json_cannot_write(
    capsys: pytest.CaptureFixture[str], path_a: Path, save_b: Any
) -> None:
    path_b = save_b(layers_1_weight=np.full((4, 5), np.inf, np.float32))

    _, lines = diff(capsys, "--json", path_a, path_b)

    report = json.loads("\n".join(lines), parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    assert report["changed"][0]["n_inf"] == [0, 20]


def test_other_dtypes_are_compared_as_numbers(capsys: pytest.CaptureFixture[str], path_a: Path, save_b: Any) -> None:
    path_b = save_b(layers_1_weight=tensors_of()["layers.1.weight"].astype(ml_dtypes.bfloat16))

    code, lines = diff(capsys, path_a, path_b)

    assert code == 1
    assert lines[1].split() == ["layers.1.weight", "F32", "->", "BF16", "[4,", "5]", "0", "0", "0"]


def test_what_no_number_says(capsys: pytest.CaptureFixture[str], write_file: Any, tmp_path: Path) -> None:
    zeros = np.zeros((4, 5), np.float32)
    tensorkeep.save({"zeros": zeros}, tmp_path / "zeros")
    tensorkeep.save({"zeros": -zeros}, tmp_path / "minus")
    unknown = write_file({"w": ("Q4_K", (32,), 18)}, name="unknown")
    other = tmp_path / "other"
    other.write_bytes(unknown.read_bytes()[:-1] + b"x")

    for a, b, what in ((tmp_path / "zeros", tmp_path / "minus", "bits only"), (unknown, other, "bytes")):
        code, lines = diff(capsys, a, b)
        assert (code, lines[0].index("different") + len("different")) == (1, lines[1].index(what) + len(what))


def test_without_values(capsys: pytest.CaptureFixture[str], path_a: Path, save_b: Any) -> None:
    path_b = save_b(layers_1_weight=np.zeros((4, 5), np.float32))

    assert diff(capsys, path_a, path_b)[0] == 1
    code, lines = diff(capsys, path_a, path_b, "--no-values")
    assert (code, lines) == (0, ["equal: 4 tensors in name, dtype and shape; values were not compared"])
    assert diff(capsys, path_a, save_b(layers_1_weight=np.zeros((5, 4), np.float32)), "--no-values")[0] == 1


def test_only_some_tensors(capsys: pytest.CaptureFixture[str], path_a: Path, save_b: Any) -> None:
    path_b = save_b(layers_1_weight=np.zeros((4, 5), np.float32), new=np.ones(2))

    assert diff(capsys, path_a, path_b, "--select", "layers.[023].*") == (0, ["equal: 3 tensors"])
    code, lines = diff(capsys, path_a, path_b, "--select", "new", "--select", "layers.0.weight")
    assert (code, lines[:2]) == (1, [f"only in {path_b}", "  new  F64  [2]"])
    assert main(["diff", str(path_a), str(path_b), "--select", "nothing"]) == 2
    error = capsys.readouterr().err
    assert f"no tensor is chosen in {path_a}" in error
    assert f" and {path_b}: expected a name that matches 'nothing'" in error
    assert main(["diff", str(path_a), str(path_b), "--select", "layers.0.weigth"]) == 2
    assert "Did you mean `layers.0.weight`" in capsys.readouterr().err


@pytest.mark.parametrize("missing", [0, 1])
def test_what_cannot_be_read_is_no_answer(capsys: pytest.CaptureFixture[str], path_a: Path, missing: int) -> None:
    paths = [str(path_a), str(path_a)]
    paths[missing] = "nothing"

    assert main(["diff", *paths]) == 2
    assert capsys.readouterr() == ("", "error: No such file or directory: nothing\n")
    assert main(["diff", str(path_a)]) == 2


def test_hostile_names(run: Any, tmp_path: Path) -> None:
    name = "\x1b[31m[red]\n\u202e"
    for file, value in (("a", 1.0), ("b", 2.0)):
        tensorkeep.save({name: np.full(3, value), name + file: np.ones(1)}, tmp_path / file)

    for options in ([], ["--json"]):
        done = run("diff", str(tmp_path / "a"), str(tmp_path / "b"), *options)
        assert (done.returncode, done.stderr) == (1, "")
        assert all(line.isprintable() for line in done.stdout.split("\n"))
        assert r"[red]\n\u202e" in done.stdout


def test_what_cannot_be_compared_is_said_and_the_rest_is(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    for number, name in enumerate("ab"):
        huge = torch.full((1,), number).expand(2**40)
        torch.save({"huge": huge, "same": torch.ones(3), "w": torch.full((2,), number)}, tmp_path / f"{name}.pt")

    code, lines = diff(capsys, tmp_path / "a.pt", tmp_path / "b.pt")

    assert code == 1
    assert lines[1].split() == ["huge", "I64", "[1099511627776]", "not", "compared"]
    assert lines[2].split()[:4] == ["w", "I64", "[2]", "2"]
    assert "is an expanded view, too large to be read as a whole" in lines[4]
    assert lines[-1].startswith("different: 1 tensor differs, 1 not compared, ")

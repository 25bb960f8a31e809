"""`tensorkeep slice`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import safetensors
import safetensors.numpy
import safetensors.torch
import torch

from tensorkeep.cli import main

WEIGHT = "encoder.layer.0.output.dense.weight"


@pytest.fixture(scope="module")
def weight(minilm: str) -> np.ndarray:
    with safetensors.safe_open(minilm, framework="np") as file:
        return file.get_tensor(WEIGHT)


@pytest.fixture
def narrow(tmp_path: Path) -> str:
    """A file with floats that NumPy itself does not have."""
    path = tmp_path / "narrow.safetensors"
    values = torch.linspace(-3, 3, 24).reshape(4, 6)
    safetensors.torch.save_file(
        {"bf16": values.bfloat16(), "fp8": values.to(torch.float8_e4m3fn), "c": values.to(torch.complex64)}, path
    )
    return str(path)


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[str]:
    assert main(["slice", *arguments]) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    return captured.out.splitlines()


def test_the_command(run: Any, minilm: str, weight: np.ndarray) -> None:
    done = run("slice", minilm, WEIGHT, "[0:4, :8]")

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [
        f"{WEIGHT}  F32  [4, 8] of [384, 1536]",
        *np.array2string(weight[0:4, :8], max_line_width=100).splitlines(),
    ]


@pytest.mark.parametrize(
    ("text", "index"),
    [
        ("0, 0", (0, 0)),
        ("-1", -1),
        ("[..., ::-500]", (..., slice(None, None, -500))),
        ("[[3, 1], :4]", ([3, 1], slice(4))),
        ("[None, 5]", (None, 5)),
        ("0:0", slice(0, 0)),
    ],
)
def test_an_index_means_what_it_means_in_numpy(
    capsys: pytest.CaptureFixture[str], minilm: str, weight: np.ndarray, text: str, index: Any
) -> None:
    lines = printed(capsys, minilm, WEIGHT, "--", text)

    assert lines[0] == f"{WEIGHT}  F32  {list(weight[index].shape)} of [384, 1536]"
    assert lines[1:] == np.array2string(weight[index], max_line_width=100).splitlines()


def test_without_an_index_all_of_it(capsys: pytest.CaptureFixture[str], minilm: str, weight: np.ndarray) -> None:
    lines = printed(capsys, minilm, WEIGHT)

    assert lines[0] == f"{WEIGHT}  F32  [384, 1536]"
    assert lines[1:] == np.array2string(weight, max_line_width=100).splitlines()
    assert lines[4] == " ..."


def test_values_are_as_wide_as_the_terminal(run: Any, minilm: str, weight: np.ndarray) -> None:
    forced = {"FORCE_COLOR": "1", "COLUMNS": "60", "TERM": "xterm"}

    done = run("slice", minilm, WEIGHT, "[:2, :8]", env=forced)

    assert done.stdout.splitlines()[1:] == np.array2string(weight[:2, :8], max_line_width=60).splitlines()


def test_narrow_floats_are_printed_and_converted(capsys: pytest.CaptureFixture[str], narrow: str) -> None:
    expected = np.linspace(-3, 3, 24, dtype=np.float32).reshape(4, 6).astype(ml_dtypes.bfloat16)

    assert printed(capsys, narrow, "bf16") == ["bf16  BF16  [4, 6]", *np.array2string(expected).splitlines()]
    assert printed(capsys, narrow, "bf16", "--as", "float32") == [
        "bf16  BF16 as float32  [4, 6]",
        *np.array2string(expected.astype(np.float32), max_line_width=100).splitlines(),
    ]


def test_written_as_npy(capsys: pytest.CaptureFixture[str], tmp_path: Path, minilm: str, weight: np.ndarray) -> None:
    out = tmp_path / "out.npy"

    assert printed(capsys, minilm, WEIGHT, "[10:20, ::-3]", "-o", str(out)) == [
        f"wrote {out}: float32 [10, 512], 20,480 bytes"
    ]
    np.testing.assert_array_equal(np.load(out), weight[10:20, ::-3])
    assert np.load(out).dtype == np.float32
    assert [path.name for path in tmp_path.iterdir()] == ["out.npy"]


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint64", "float16", "float64", "complex64"])
@pytest.mark.parametrize("shape", [(), (0,), (2, 0, 3), (3, 4)])
def test_npy_of_every_shape_and_dtype_is_what_numpy_writes(
    tmp_path: Path, dtype: str, shape: tuple[int, ...]
) -> None:
    array = np.arange(np.prod(shape, dtype=int)).reshape(shape).astype(dtype)
    path = tmp_path / "in.safetensors"
    safetensors.numpy.save_file({"a": array}, path)
    np.save(tmp_path / "expected.npy", array)

    assert main(["slice", str(path), "a", "-o", str(tmp_path / "out.npy")]) == 0

    assert (tmp_path / "out.npy").read_bytes() == (tmp_path / "expected.npy").read_bytes()


@pytest.mark.parametrize("name", ["bf16", "fp8"])
def test_npy_refuses_what_it_cannot_hold_until_told_to_convert(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, narrow: str, name: str
) -> None:
    out = tmp_path / "out.npy"

    assert main(["slice", narrow, name, "-o", str(out)]) == 2
    assert "Pass --as float32, which represents each of its values exactly" in capsys.readouterr().err
    assert not out.exists()

    assert main(["slice", narrow, name, "-o", str(out), "--as", "float32"]) == 0
    expected = safetensors.torch.load_file(narrow)[name].float().numpy()
    np.testing.assert_array_equal(np.load(out), expected)


def test_complex_values_are_not_cut_to_floats(capsys: pytest.CaptureFixture[str], narrow: str) -> None:
    assert main(["slice", narrow, "c", "--as", "float64"]) == 2
    assert (
        capsys.readouterr().err
        == "error: complex values cannot be converted to floats: found complex64. Leave out --as\n"
    )


def test_only_npy_files_are_written(capsys: pytest.CaptureFixture[str], tmp_path: Path, narrow: str) -> None:
    before = Path(narrow).read_bytes()

    assert main(["slice", narrow, "bf16", "-o", narrow]) == 2
    assert "expected a path that ends in .npy" in capsys.readouterr().err
    assert Path(narrow).read_bytes() == before


def test_a_file_that_cannot_be_written_leaves_the_old_one(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, narrow: str
) -> None:
    assert main(["slice", narrow, "c", "-o", str(tmp_path / "missing" / "out.npy")]) == 2
    assert capsys.readouterr().err.startswith("error: ")


def test_unknown_names_come_with_near_ones(capsys: pytest.CaptureFixture[str], minilm: str) -> None:
    assert main(["slice", minilm, "pooler.dense.wieght"]) == 2
    assert "Did you mean `pooler.dense.weight`" in capsys.readouterr().err


def test_tensors_of_unknown_dtype_are_refused(capsys: pytest.CaptureFixture[str], write_file: Any) -> None:
    assert main(["slice", str(write_file({"w": ("Q4_K", (2000,), 1125)})), "w"]) == 2
    assert "dtype that this version does not know" in capsys.readouterr().err


@pytest.mark.parametrize("index", ["-1", "-3:", "-2:,0"])
def test_an_index_that_looks_like_an_option_comes_with_a_hint(
    capsys: pytest.CaptureFixture[str], minilm: str, index: str
) -> None:
    assert main(["slice", minilm, WEIGHT, index]) == 2
    assert "Put an index that starts with a minus in brackets, such as '[-1]' (see" in capsys.readouterr().err

    assert main(["slice", minilm, WEIGHT, "--one"]) == 2
    assert "brackets" not in capsys.readouterr().err
    assert main(["slice", minilm, WEIGHT, f"[{index}]"]) == 0


def test_a_dtype_that_is_no_choice_is_told_the_choices(capsys: pytest.CaptureFixture[str], minilm: str) -> None:
    assert main(["slice", minilm, WEIGHT, "--as", "int8"]) == 2
    assert capsys.readouterr().err == (
        "error: Invalid value for '--as': 'int8' is not one of 'float32', 'float64' (see tensorkeep slice --help)\n"
    )


def test_what_it_would_cost(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "w.safetensors"
    safetensors.numpy.save_file({"w": np.zeros((50_000, 64), np.float32)}, path)

    assert printed(capsys, str(path), "w", "[5]", "--plan") == [
        "1 request, 256 bytes for 256 that are wanted",
        "  file" + " " * (len(str(path)) - 4 + 2) + "bytes  ranges",
        f"  {path}    256  [1,360, 1,616)",
    ]
    lines = printed(capsys, str(path), "w", "[::1000]", "--plan")
    assert lines[0] == "50 requests, 12,800 bytes for 12,800 that are wanted"
    assert lines[-1] == "  and 30 more"

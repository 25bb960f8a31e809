"""`tensorkeep inspect --stats`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from typer.testing import CliRunner

import tensorkeep
from tensorkeep.cli import app
from tensorkeep.cli.terminal import sparkline


def inspect(*arguments: object, **environment: str) -> list[str]:
    result = CliRunner().invoke(app, ["inspect", *map(str, arguments)], catch_exceptions=False, env=environment)
    assert result.exit_code == 0
    return result.stdout.splitlines()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    arrays: dict[str, Any] = {
        "layers.10.weight": np.linspace(-1, 1, 4001).astype(ml_dtypes.bfloat16),
        "layers.2.weight": np.array([0, 0, 0, 5], np.int64),
        "bad\n\x1b[31m": np.array([1, np.nan, np.inf, -np.inf], np.float32),
        "nothing": np.zeros((0, 3), np.float32),
        "zero": np.zeros(7, np.uint8),
    }
    tensorkeep.save(arrays, tmp_path / "m.safetensors")
    return tmp_path / "m.safetensors"


def test_a_row_for_each_tensor_and_notes(path: Path) -> None:
    lines = inspect("--stats", "--sort", "name", path)

    start = next(place for place, line in enumerate(lines) if line.startswith("tensor  "))
    assert [line.rstrip() for line in lines[start : start + 11]] == [
        "tensor            dtype  min  max  mean    std  histogram",
        r"bad\n\x1b[31m     F32      1    1     1      0  █",
        "  1 NaN, 2 Inf",
        "layers.2.weight   I64      0    5  1.25   2.17  █    ▃",
        "  75.0 % zeros",
        "layers.10.weight  BF16    -1    1     0  0.577  ████████▁",
        "nothing           F32",
        "zero              U8       0    0     0      0  █",
        "  all zeros",
        "",
        r"1 tensor has NaN or Inf: bad\n\x1b[31m",
    ]


def test_json_has_everything_and_no_infinite_number(path: Path) -> None:
    text = "\n".join(inspect("--stats", "--json", "--filter", "layers.*", path))

    found = json.loads(text, parse_constant=pytest.fail)["statistics"]
    expected = tensorkeep.statistics(path, names="layers.*")
    assert [each["name"] for each in found] == list(expected)
    for each in found:
        same = expected[each["name"]]
        assert (each["mean"], each["norm"], each["n_distinct"]) == (same.mean, same.norm, same.n_distinct)
        assert tuple(each["histogram"]["counts"]) == same.histogram.counts
        assert tuple(each["magnitudes"]["edges"]) == same.magnitudes.edges
    assert "statistics" not in json.loads("\n".join(inspect("--json", path)))


def test_tensors_that_are_split_and_other_kinds(path: Path, tmp_path: Path) -> None:
    tensorkeep.save_checkpoint({"w": np.arange(4000.0)}, tmp_path / "split", max_shard_size=10_000, split_large=True)
    np.savez(tmp_path / "a.npz", x=np.arange(3.0), names=np.array(["a"], dtype=object))

    assert any(line.startswith("w       F64      0  4e+03") for line in inspect("--stats", tmp_path / "split"))
    assert any(line.startswith("x       F64      0    2     1") for line in inspect("--stats", tmp_path / "a.npz"))
    assert "No tensor of 5" in "\n".join(inspect("--stats", "--filter", "other", path))


def test_it_does_not_apply_to_ranks(path: Path) -> None:
    result = CliRunner().invoke(app, ["inspect", "--stats", "--ranks", "2", str(path)])

    assert result.exit_code != 0


@pytest.mark.parametrize(
    ("counts", "n_chars", "drawn"),
    [
        ((), 4, ""),
        ((1, 0, 8), 4, "▁ █"),
        ((1, 1, 1, 1, 8, 8), 3, "▁▁█"),
        ((1, 2, 3, 4, 5), 2, "▆█"),
        ((10**12, 1), 9, "█▁"),
    ],
)
def test_a_sparkline(counts: tuple[int, ...], n_chars: int, drawn: str) -> None:
    assert sparkline(counts, n_chars) == drawn
    assert sparkline(counts, n_chars, ascii_only=True).isascii()

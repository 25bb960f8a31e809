"""`tensorkeep convert`."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import tensorkeep
from tensorkeep.cli import main


class Payload:
    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> Any:
        return os.system, (f"touch {self.marker}",)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A checkpoint with ties, plain data and a sparse tensor."""
    weight = torch.arange(6.0).reshape(2, 3)
    content = {"model": {"w": weight, "tied": weight}, "epoch": 3, "mask": torch.eye(2).to_sparse()}
    torch.save(content, tmp_path / "model.ckpt")
    return tmp_path / "model.ckpt"


def call(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    assert main(["convert", *map(str, arguments)]) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    return captured.out


def fail(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    assert main(["convert", *map(str, arguments)]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    return captured.err


def test_convert(run: Any, source: Path, tmp_path: Path) -> None:
    done = run("convert", str(source), str(tmp_path / "safe"))

    assert (done.returncode, done.stderr) == (0, "")
    first, *facts = done.stdout.splitlines()
    assert first.startswith(f"wrote {tmp_path / 'safe'}: model.safetensors, 3 tensors, 64 B in ")
    assert first.endswith("; nothing was run")
    assert facts == [
        "  stored once  model.tied is model.w",
        "  in parts     mask (sparse_coo)",
        "  kept         1 value beside the tensors",
        "  checked      3 checksums of the source, and every tensor, read back",
    ]
    found = tensorkeep.load(tmp_path / "safe")
    np.testing.assert_array_equal(found["model"]["w"], [[0, 1, 2], [3, 4, 5]])
    assert found["epoch"] == 3
    assert tensorkeep.verify(tmp_path / "safe").is_whole


def test_as_json(capsys: pytest.CaptureFixture[str], source: Path, tmp_path: Path) -> None:
    target = tmp_path / "safe"

    report = json.loads(call(capsys, source, target, "--json", "--max-shard-size=30", "--sha256", "--no-check"))

    assert report.pop("seconds") >= 0
    assert report.pop("replaced") == []
    assert report == {
        "path": str(target),
        "sources": [str(source)],
        "index": "model.safetensors.index.json",
        "files": [f"model-0000{number}-of-00003.safetensors" for number in (1, 2, 3)],
        "n_tensors": 3,
        "data_nbytes": 64,
        "ties": {"model.tied": "model.w"},
        "overlapped": [],
        "composites": {"mask": "sparse_coo"},
        "left_out": {},
        "has_tree": True,
        "n_values": 1,
        "is_checked": False,
        "n_summed": 0,
        "n_metadata": 0,
    }


def test_options(capsys: pytest.CaptureFixture[str], source: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.pt"
    torch.save({"model.extra": torch.ones(2)}, other)
    target = tmp_path / "one.safetensors"
    options = (
        "--select=model.*",
        "--drop=*.tied",
        "--rename=model.w=model.v",
        "--strip-prefix=model.",
        "--cast=bf16",
    )

    out = call(capsys, source, other, target, *options)

    assert "one.safetensors: 2 tensors, 16 B" in out
    assert "tensors by name, and nothing else\n" in out
    assert {name: lazy.dtype for name, lazy in tensorkeep.open(target).items()} == {"extra": "BF16", "v": "BF16"}


def test_a_payload(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    marker = tmp_path / "MARKER"
    torch.save({"w": torch.ones(2), "evil": Payload(marker)}, tmp_path / "evil.pt")

    error = fail(capsys, tmp_path / "evil.pt", tmp_path / "safe")
    assert "posix.system" in error
    assert "--drop-unknown" in error
    assert not (tmp_path / "safe").exists()

    out = call(capsys, tmp_path / "evil.pt", tmp_path / "safe", "--drop-unknown")
    assert "  left out  evil: posix.system\n" in out
    assert list(tensorkeep.load(tmp_path / "safe")) == ["w"]
    assert not marker.exists()


def test_a_long_report_is_shortened_and_harmless(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    tied = torch.ones(2)
    names = ["w", "\x1b[31mred", "x" * 1000, *map(str, range(998))]
    torch.save({**dict.fromkeys(names, tied), "steps": list(range(1000))}, tmp_path / "model.pt")

    out = call(capsys, tmp_path / "model.pt", tmp_path / "safe")

    assert "\x1b" not in out
    assert "and 995 more" in out
    assert "1,000 values beside the tensors" in out
    assert max(map(len, out.splitlines())) < 400


def test_a_progress_bar_is_for_terminals_only(run: Any, source: Path, tmp_path: Path) -> None:
    assert run("convert", str(source), str(tmp_path / "safe")).stderr == ""


def test_one_path_is_not_enough(capsys: pytest.CaptureFixture[str], source: Path) -> None:
    assert main(["convert", str(source)]) == 2
    assert "Missing argument" in capsys.readouterr().err


def test_it_counts_the_metadata_that_it_keeps(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    source = tmp_path / "a.safetensors"
    tensorkeep.save({"w": torch.ones(2)}, source, metadata={"format": "pt", "license": "MIT", "author": "me"})

    out = call(capsys, source, tmp_path / "safe")

    assert "  kept     2 metadata keys beside the tensors\n" in out

"""`tensorkeep check`: findings for people and programs, and exit status."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import tensorkeep
from tensorkeep.cli import main


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    tensorkeep.save({"a": np.ones((4, 25)), "b": np.ones(2)}, "model.safetensors")
    tensorkeep.save({"_orig_mod.\x1b[31ma": np.ones((4, 25))}, "odd.safetensors")
    tensorkeep.save({"a": np.ones((4, 25))}, "part.safetensors")


def test_a_sound_file_makes_sense(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "model.safetensors", "--data"]) == 0
    assert capsys.readouterr().out == "makes sense: 2 tensors in 1 file, headers and elements\n"


def test_notes_do_not_count_and_names_are_harmless(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "odd.safetensors"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("note  wrapper-names")
    assert "\x1b" not in shown


def test_findings_are_status_1_unless_enough_fits(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "part.safetensors", "--against", "model.safetensors"]) == 1
    shown = capsys.readouterr().out
    assert "error  missing  1 tensor of `model.safetensors` not in the checkpoint" in shown
    assert "100.0 % of the checkpoint is used, 98.0 % of the model is filled" in shown
    assert main(["check", "part.safetensors", "--against", "model.safetensors", "--min-fit", "98%"]) == 0
    assert main(["check", "part.safetensors", "--against", "model.safetensors", "--min-fit", "99%"]) == 1
    assert main(["check", "odd.safetensors", "--against", "model.safetensors", "--min-fit", "0.1"]) == 1
    assert main(["check", "part.safetensors", "--min-fit", "99%"]) == 2
    assert main(["check", "part.safetensors", "--against", "model.safetensors", "--min-fit", "200%"]) == 2
    assert "'--min-fit': expected a share such as 10% or 0.1, found '200%'" in capsys.readouterr().err


def test_everything_is_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "part.safetensors", "--against", "model.safetensors", "--json"]) == 1

    report = json.loads(capsys.readouterr().out)

    assert (report["is_sound"], report["is_accepted"], report["share_filled"]) == (False, False, 0.980392)
    (finding,) = report["findings"]
    assert (finding["code"], finding["severity"], finding["tensors"], finding["n_tensors"]) == (
        "missing",
        "error",
        ["b"],
        1,
    )

"""`make gpu` without a GPU: its measurements run to the end on the CPU, and its tests on a stand-in."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks import gpu
from tests.support import ROOT

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the benchmarks read Linux's page cache and /proc")

MAY_BE_MISSING = {
    *("safetensors 0.9, prefetch", "fastsafetensors", "InstantTensor", "Run:ai"),
    *("tensorkeep, CuPy", "tensorkeep, CuPy by DLPack"),
}


@pytest.fixture
def run_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run the contenders in this process, which is quicker."""

    def run(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        out, err = StringIO(), StringIO()
        assert command[:3] == [sys.executable, "-m", "benchmarks.gpu"]
        with redirect_stdout(out), redirect_stderr(err):
            try:
                gpu.main(command[3:])
            except Exception as error:
                if command[command.index("--run") + 1] not in MAY_BE_MISSING:
                    raise
                return subprocess.CompletedProcess(command, 1, "", repr(error))
        return subprocess.CompletedProcess(command, 0, out.getvalue(), "")

    monkeypatch.setattr(gpu.subprocess, "run", run)


def options(folder: Path, *more: str) -> list[str]:
    folders = ("--folder", f"{folder}/disk", "--tmpfs", f"{folder}/memory", "--results", f"{folder}/gpu.json")
    return ["--device", "cpu", "--nbytes", "3000000", "--tensors", "100", "--repeats", "2", *folders, *more]


def test_everything_is_measured(run_here: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    gpu.main(options(tmp_path))

    report = json.loads((tmp_path / "gpu.json").read_text())
    assert report["machine"]["software"].startswith("Python 3")
    assert list(report["cases"]) == list(gpu.CASES)
    for case, (_, contenders) in gpu.CASES.items():
        results = report["cases"][case]["results"]
        assert set(contenders) - set(results) <= MAY_BE_MISSING
        assert all(found["seconds"] > 0 for found in results.values())
    assert f"torch {torch.__version__.split('+')[0]}" in report["machine"]["software"]
    assert "GB/s" in capsys.readouterr().out
    assert [path.name for path in tmp_path.iterdir()] == ["gpu.json"]


def test_cases_can_be_measured_one_by_one(run_here: None, tmp_path: Path) -> None:
    gpu.main(options(tmp_path, "--only", "columns", "--keep"))
    (tmp_path / "disk" / "of others").touch()
    gpu.main(options(tmp_path, "--only", "pickle"))

    report = json.loads((tmp_path / "gpu.json").read_text())
    assert set(report["cases"]) == {"a quarter of the columns", "a pickle"}
    assert [path.name for path in (tmp_path / "disk").iterdir()] == ["of others"]


def test_a_case_that_hangs_and_the_end_of_the_time_end_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def hang(command: list[str], timeout: float, **_: Any) -> Any:
        raise subprocess.TimeoutExpired(command, timeout)

    monkeypatch.setattr(gpu.subprocess, "run", hang)

    gpu.main(options(tmp_path, "--only", "columns"))
    gpu.main(options(tmp_path, "--only", "pickle", "--seconds", "-1"))

    told = capsys.readouterr().err
    assert "no safetensors, columns: not done in 90 seconds" in told
    assert "a pickle: no time left" in told


def test_a_full_disk_leaves_out_what_needs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(gpu.shutil, "disk_usage", lambda _: type("Usage", (), {"free": 10**6}))

    gpu.main(options(tmp_path, "--only", "columns"))

    assert not (tmp_path / "gpu.json").exists()
    assert "no room in" in capsys.readouterr().err


def test_the_tests_of_make_gpu_pass_on_a_stand_in(tmp_path: Path) -> None:
    """So that they do not fail on a GPU for a reason that has nothing to do with it."""
    options = ("-q", "-c", os.devnull, "--rootdir", ".", "--noconftest", "-p", "no:cacheprovider")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "tests/gpu", *options, f"--basetemp={tmp_path}/pytest"],
        cwd=ROOT,
        env=os.environ | {"TENSORKEEP_STAND_IN": "1"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout

"""`make gpu` without a GPU: its measurements run to the end on the CPU, and its tests on a stand-in."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from math import inf
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from benchmarks import gpu, gpu_page
from tests.support import ROOT

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the benchmarks read Linux's page cache and /proc")

MAY_BE_MISSING = {
    *("safetensors 0.9, prefetch", "fastsafetensors", "InstantTensor", "Run:ai"),
    *("tensorkeep, CuPy", "tensorkeep, CuPy by DLPack"),
}


@pytest.fixture
def run_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run the contenders in this process, which is quicker."""

    run_process = subprocess.run

    def run(command: list[str], **options: Any) -> subprocess.CompletedProcess[str]:
        out, err = StringIO(), StringIO()
        if command[:3] != [sys.executable, "-m", "benchmarks.gpu"]:
            return run_process(command, **options)
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
    assert sorted(path.name for path in tmp_path.iterdir()) == ["gpu.json", "gpu.md"]
    assert (tmp_path / "gpu.md").read_text() == gpu_page.page(report)


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


def test_no_contender_begins_after_the_time(
    run_here: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run, begun = gpu._run, []

    def slow(name: str, path: Path, given: Any) -> Any:
        begun.append(name)
        monkeypatch.setattr(gpu, "time", SimpleNamespace(monotonic=lambda: inf, perf_counter=time.perf_counter))
        return run(name, path, given)

    monkeypatch.setattr(gpu, "_run", slow)
    gpu.main(options(tmp_path, "--only", "quarter of the columns", "--seconds", "60"))

    assert begun == ["tensorkeep, columns"]
    results = json.loads((tmp_path / "gpu.json").read_text())["cases"]["a quarter of the columns"]["results"]
    assert list(results) == begun
    assert "no safetensors, columns: no time left" in capsys.readouterr().err


def test_the_dry_run_passes(
    run_here: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """So that nothing fails on a GPU for a reason that has nothing to do with it: the tests of a GPU too."""
    monkeypatch.setenv("TENSORKEEP_STAND_IN", "1")
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)

    gpu.main(["--dry-run"])

    told = capsys.readouterr().out
    assert " passed" in told.partition("# Benchmarks on a GPU")[2].partition("## ")[0]
    assert all(f"## {case[:1].upper()}{case[1:]}" in told for case in gpu.CASES)
    assert not list(tmp_path.glob("*/gpu.json"))


def test_failed_tests_make_it_fail_after_the_measurements(
    tmp_path: Path, run_here: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu, "_TESTS", ("-c", "print('1 failed in 2.00s'); raise SystemExit(1)"))
    monkeypatch.setattr(gpu, "_ON_A_BARE_MACHINE", ())
    with pytest.raises(SystemExit, match="tests failed"):
        gpu.main(options(tmp_path, "--only", "quarter of the columns", "--tests"))
    report = json.loads((tmp_path / "gpu.json").read_text())
    assert report["tests"] == "1 failed in 2.00s"
    assert report["cases"]


def figures(seconds: float, **more: float) -> dict[str, float]:
    return {"seconds": seconds, "host_nbytes": 1e8, "device_nbytes": 1e10, "device_peak_nbytes": 1.01e10, **more}


def test_the_page_says_which_goals_were_reached() -> None:
    machine = {"device": "a GPU", "host": "16 cores, 128 GiB", "software": "Python 3.12", "date": "2026-12-01"}
    of_large = {
        "tensorkeep": figures(1.0),
        "tensorkeep, verified": figures(2.0),
        "safetensors": figures(3.5),
        "limit: pinned copies": figures(0.5),
        "limit: reads": figures(0.95),
    }
    case = {"nbytes": 10**10, "results": of_large}
    report = {"machine": machine, "tests": "9 passed in 3s", "repeats": 3, "cases": {gpu_page.LARGE: case}}

    lines = gpu_page.page(report).splitlines()

    assert "Measured on 2026-12-01: a GPU, 16 cores, 128 GiB, Python 3.12. The tests: 9 passed in 3s." in lines
    assert "| bf16 in the page cache: speed, of the lower of both limits | at least 0.9 | 0.95 | reached |" in lines
    assert "| the same, verified | at least 0.72 | 0.475 | **missed** |" in lines
    assert "| bf16 in the page cache: speed, of safetensors 0.8 | at least 3 | 3.5 | reached |" in lines
    assert "| host memory beside the page cache, MB | at most 332 | 100 | reached |" in lines
    assert "| device memory beside the tensors, % | at most 2 | 1 | reached |" in lines
    assert "| save to tmpfs: speed, of copies to the host | at least 0.8 |  |  |" in lines
    assert "| tensorkeep | 1.000 | 10.00 | 100 | 100 |" in lines


def test_results_of_another_machine_are_committed_with_their_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = {"device": "a GPU", "host": "16 cores", "software": "Python 3.12", "date": "2026-12-01"}
    report = {"machine": machine, "repeats": 3, "cases": {}}
    brought = tmp_path / "brought.json"
    brought.write_text(json.dumps(report))
    root = tmp_path / "project"
    (root / "docs").mkdir(parents=True)
    git = ("git", "-C", str(root), "-c", "user.name=N", "-c", "user.email=n@example.org")
    subprocess.run([*git, "init", "-q"], check=True)
    for name, value in (("user.name", "N"), ("user.email", "n@example.org")):
        subprocess.run([*git, "config", name, value], check=True)
    monkeypatch.setattr(gpu_page, "RESULTS", root / "gpu.json")
    monkeypatch.setattr(gpu_page, "PAGE", root / "docs" / "benchmarks-gpu.md")

    gpu_page.main([str(brought), "--commit"])

    shown = subprocess.run([*git, "log", "--stat", "--format=%s"], check=True, capture_output=True, text=True).stdout
    assert shown.startswith("Loads to a GPU and saves from it are measured: a GPU, 2026-12-01\n")
    assert "gpu.json" in shown
    assert (root / "docs" / "benchmarks-gpu.md").read_text() == gpu_page.page(report)


NOT_MEASURED = {
    "README.md": "has not yet been run on one",
    "docs/why.md": "yet been run on a GPU",
    "docs/how-to/devices.md": "**Not measured on a GPU.**",
    "docs/stability.md": "`make gpu` tests them, not run here",
}
"""What pages say for as long as nobody has run `make gpu` on a GPU."""


@pytest.mark.parametrize("name", NOT_MEASURED)
def test_pages_say_whether_it_was_measured(name: str) -> None:
    text = (ROOT / name).read_text(encoding="utf-8")
    assert (NOT_MEASURED[name] in text) == (not gpu_page.RESULTS.exists())


def test_the_page_is_that_of_the_results() -> None:
    report = json.loads(gpu_page.RESULTS.read_text(encoding="utf-8")) if gpu_page.RESULTS.exists() else None
    assert gpu_page.PAGE.read_text(encoding="utf-8") == gpu_page.page(report)

"""The benchmarks run from end to end, small, and say what came out."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the benchmarks read Linux's page cache and /proc")


def run_benchmarks(tmp_path: Path, *options: str) -> subprocess.CompletedProcess[str]:
    folders = ("--folder", tmp_path / "disk", "--tmpfs", tmp_path / "memory")
    command = [sys.executable, "-m", "benchmarks", "--quick", *folders, *options]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True)


def names_in(output: str) -> set[str]:
    return set(re.findall(r"^(\w+/\S+) ", output, re.MULTILINE))


def test_a_quick_run_measures_every_case_and_leaves_no_file(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    done = run_benchmarks(tmp_path, "--output", str(page))
    assert done.returncode == 0, done.stderr
    assert {name.partition("/")[0] for name in names_in(done.stdout)} == {"load", "save", "open", "slice", "startup"}
    text = page.read_text()
    for heading in ("Loading", "Saving", "Opening", "Reading a part", "Starting up", "All figures"):
        assert f"\n## {heading}\n" in text
    assert len(re.findall(r"^\| .* \| tensorkeep\S* ", text, re.MULTILINE)) >= len(names_in(done.stdout)) - 2
    assert not list((tmp_path / "disk").iterdir())
    assert not list((tmp_path / "memory").iterdir())


def test_only_what_matches_is_run_and_the_folder_is_kept_on_request(tmp_path: Path) -> None:
    done = run_benchmarks(tmp_path, "--only", "startup/*keep", "--keep")
    assert done.returncode == 0, done.stderr
    assert names_in(done.stdout) == {"startup/tensorkeep"}
    assert (tmp_path / "disk" / "tensorkeep-benchmarks").exists()


def test_a_pattern_that_matches_nothing_is_an_error(tmp_path: Path) -> None:
    done = run_benchmarks(tmp_path, "--only", "nothing/*")
    assert done.returncode == 2
    assert "no case matches" in done.stderr

"""The benchmarks run from end to end, small, and say what came out."""

from __future__ import annotations

import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest

from benchmarks.cases import find_case
from benchmarks.machine import Machine
from benchmarks.record import Measurement, read_record, recorded, write_record
from benchmarks.report import page
from benchmarks.results import CaseResult, Memory
from tests.support import ROOT

GROUPS = {
    *(
        "load",
        "libraries",
        "save",
        "background",
        "open",
        "checking",
        "slice",
        "blocks",
        "trust",
        "checkpoint",
        "merging",
        "model",
        "startup",
        "pickles",
        "formats",
        "store",
        "trainers",
        "remote",
    ),
    "serve",
    "viewing",
    "distributed",
    "meshes",
    "patches",
    "ranks",
}

MACHINE = Machine(hardware="one core", system="Linux", software="Python", n_busy=0.0)
WHEN = datetime(2026, 11, 21, tzinfo=UTC)

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
    assert {name.partition("/")[0] for name in names_in(done.stdout)} == GROUPS
    text = page.read_text()
    for heading in (
        "Loading",
        "Saving",
        "Saving in the background",
        "Steps of a run",
        "Opening",
        "Checking",
        "Reading part of a tensor",
        "Signatures and encryption",
        "Sharded checkpoints",
        "Computing models",
        "Loading into a model",
        "Files of `torch.save`",
        "Files of other libraries",
        "Training libraries",
        "From a web server",
        "Serving",
        "Viewing",
        "Many ranks",
        "JAX on many hosts",
        "Startup",
        "All figures",
    ):
        assert f"\n## {heading}\n" in text
    assert len(re.findall(r"^\| .* \| tensorkeep\S* ", text, re.MULTILINE)) >= len(names_in(done.stdout)) - 2
    assert not list((tmp_path / "disk").iterdir())
    assert not list((tmp_path / "memory").iterdir())


def test_only_what_matches_is_run_and_the_folder_is_kept_on_request(tmp_path: Path) -> None:
    done = run_benchmarks(tmp_path, "--only", "startup/*keep", "--keep")
    assert done.returncode == 0, done.stderr
    assert names_in(done.stdout) == {"startup/tensorkeep"}
    assert (tmp_path / "disk" / "tensorkeep-benchmarks").exists()


def test_two_runs_at_once_leave_each_other_alone(tmp_path: Path) -> None:
    with ThreadPoolExecutor(2) as runs:
        short, long = runs.map(lambda only: run_benchmarks(tmp_path, "--only", only), ("serve/small", "serve/*"))
    assert short.returncode == 0, short.stderr
    assert long.returncode == 0, long.stderr
    assert names_in(short.stdout) < names_in(long.stdout)
    assert not list((tmp_path / "disk").iterdir())


def test_memory_above_its_target_is_a_target_that_is_not_met() -> None:
    case = msgspec.structs.replace(find_case("startup/tensorkeep"), max_extra_nbytes=10_000_000)
    times = {contender.name: [0.01] for contender in case.contenders}
    for nbytes, is_met in ((10_000_000, True), (12_000_000, False)):
        memory = {contender.name: Memory(nbytes, 0) for contender in case.contenders}
        text = page([CaseResult(case, times, memory, MACHINE, WHEN)], [case])
        assert "at most 30.0 ms more, at most 10 MB |" in text
        assert ("12 MB, 12 MB of memory; the target is at most 10 MB." not in text) == is_met
        assert ("Targets not met" not in text) == is_met


def test_a_later_run_replaces_what_it_measures_and_keeps_the_rest(tmp_path: Path) -> None:
    files = (tmp_path / "record.json", tmp_path / "page.md")
    cases = [find_case("startup/tensorkeep"), find_case("startup/torch")]
    old = {
        case.name: Measurement({contender.name: [9.0] for contender in case.contenders}, {}, MACHINE, WHEN)
        for case in cases
    }
    write_record(files[0], old)

    done = run_benchmarks(tmp_path, "--only", "startup/*keep", "--record", str(files[0]), "--output", str(files[1]))

    assert done.returncode == 0, done.stderr
    new = read_record(files[0])
    assert {name for name in new if new[name] != old[name]} == {"startup/tensorkeep"}
    text = files[1].read_text()
    assert all(case.title in text for case in cases)
    assert "21 November 2026 and " in text
    assert f"\n- Opening: {find_case('open/100k').title}\n" in text


def test_what_is_recorded_of_other_contenders_is_not_shown() -> None:
    case = find_case("startup/tensorkeep")
    times = {contender.name: [0.01] for contender in case.contenders}

    assert len(recorded([case], {case.name: Measurement(times, {}, MACHINE, WHEN)})) == 1
    assert recorded([case], {case.name: Measurement({**times, "gone": [1.0]}, {}, MACHINE, WHEN)}) == []


def test_a_pattern_that_matches_nothing_is_an_error(tmp_path: Path) -> None:
    done = run_benchmarks(tmp_path, "--only", "nothing/*")
    assert done.returncode == 2
    assert "no case matches" in done.stderr

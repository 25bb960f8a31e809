"""`python -m benchmarks`: measure, print the results, record them, write the page."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.case import Case, Place
from benchmarks.cases import find_case, find_cases
from benchmarks.machine import Machine, describe_machine
from benchmarks.plot import plots
from benchmarks.record import Measurement, read_record, recorded, write_record
from benchmarks.report import case_line, page
from benchmarks.results import CaseResult, Memory
from benchmarks.worker import MeasureMemory, Prepare, Task, Time, run_in_worker

_ROOT = Path(__file__).parents[1]
_PAGE = _ROOT / "docs" / "benchmarks.md"
_RECORD = _ROOT / "benchmarks" / "record.json"


def main(arguments: list[str] | None = None) -> int:
    """Run the benchmarks."""
    options = _parse(arguments)
    cases = find_cases(options.only)
    if not cases:
        print(f"no case matches {options.only!r}", file=sys.stderr)
        return 2
    folder, tmpfs = (_own_folder(parent, keep=options.keep) for parent in (options.folder, options.tmpfs))
    place = Place(folder, tmpfs, options.quick)
    record = read_record(options.record) if options.record else {}
    try:
        for result in _measure(cases, place, options.rounds):
            print(case_line(result), flush=True)
            record[result.case.name] = Measurement.of(result)
            if options.record:  # at once: a run that is stopped keeps what it measured
                write_record(options.record, record)
    finally:
        if not options.keep:
            shutil.rmtree(place.folder)
            shutil.rmtree(place.tmpfs)
    if options.output is not None:
        every = find_cases("*")
        _write_page(options.output, recorded(every, record), every)
        print(f"wrote {options.output}")
    return 0


def _write_page(path: Path, results: list[CaseResult], cases: list[Case]) -> None:
    """Write the page, and the plots it shows below `assets/` beside it."""
    path.write_text(page(results, cases), encoding="utf-8")
    for name, picture in plots(results).items():
        drawn = path.parent / "assets" / name
        drawn.parent.mkdir(parents=True, exist_ok=True)
        drawn.write_text(picture, encoding="utf-8")


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small sizes and one round, to see that everything runs")
    parser.add_argument("--only", metavar="GLOB", default="*", help="cases to run, such as 'load/*'")
    parser.add_argument("--rounds", type=int, help="rounds of each case, instead of its own number")
    parser.add_argument("--folder", type=Path, default=_default_folder(), help="where the files go, on a disk")
    parser.add_argument("--tmpfs", type=Path, default=Path("/dev/shm"), help="where files in memory go")
    parser.add_argument("--keep", action="store_true", help="leave the files there, for the next run")
    parser.add_argument(
        "--record", type=Path, help=f"the record to update; a run that is not quick updates {_RECORD}"
    )
    parser.add_argument("--output", type=Path, help=f"the page to write; a run that is not quick writes {_PAGE}")
    options = parser.parse_args(arguments)
    if not options.quick:
        options.record = options.record or _RECORD
        options.output = options.output or _PAGE
    return options


def _own_folder(parent: Path, *, keep: bool) -> Path:
    """Make a folder that no other run uses; a kept one has a fixed name, so that the next run finds it."""
    parent.mkdir(parents=True, exist_ok=True)
    if not keep:
        return Path(tempfile.mkdtemp(prefix="tensorkeep-benchmarks-", dir=parent))
    kept = parent / "tensorkeep-benchmarks"
    kept.mkdir(exist_ok=True)
    return kept


def _default_folder() -> Path:
    """Choose a disk: from the environment, else beside the project, because /tmp is often in memory."""
    return Path(os.environ.get("TMPDIR") or _ROOT.parent)


def _measure(cases: list[Case], place: Place, rounds: int | None) -> Iterator[CaseResult]:
    machine = describe_machine(place.folder)
    tasks = [_tasks(case, place, rounds or case.rounds) for case in cases]
    outcomes = _perform([task for each in tasks for task in each], place)
    for case, each in zip(cases, tasks, strict=True):
        yield _gather(case, [next(outcomes) for _ in each], machine)


def _tasks(case: Case, place: Place, rounds: int) -> list[Task]:
    time = Time(case.name, rounds=1, warm_ups=0) if place.quick else Time(case.name, rounds, warm_ups=1)
    tasks: list[Task] = [Prepare(case.name), time]
    if case.has_memory:
        tasks.extend(MeasureMemory(case.name, contender.name) for contender in (case.ours, *case.peers))
    return tasks


def _perform(tasks: list[Task], place: Place) -> Iterator[Any]:
    """Yield the outcomes one by one: from a process per task or, in a quick run, one for many."""
    for _, together in groupby(enumerate(tasks), lambda at: _company(at[1]) if place.quick else at[0]):
        yield from run_in_worker([task for _, task in together], place)


def _company(task: Task) -> object:
    return find_case(task.case).company


def _gather(case: Case, outcomes: list[Any], machine: Machine) -> CaseResult:
    _, times, *memories = outcomes
    names = [contender.name for contender in (case.ours, *case.peers)]
    return CaseResult(
        case,
        msgspec.convert(times, dict[str, list[float]]),
        dict(zip(names, msgspec.convert(memories, list[Memory]), strict=False)),
        machine,
        datetime.now(UTC),
    )


if __name__ == "__main__":
    sys.exit(main())

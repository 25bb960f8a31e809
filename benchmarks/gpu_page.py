"""The page about loads to a GPU: `docs/benchmarks-gpu.md`, from what `benchmarks.gpu` measured.

`python -m benchmarks.gpu_page RESULTS --commit` takes results that were measured on another machine into the project,
writes the page and commits both.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

RESULTS: Final = Path(__file__).with_name("gpu.json")
PAGE: Final = Path(__file__).parents[1] / "docs" / "benchmarks-gpu.md"

LARGE: Final = "300 tensors of bf16, page cache"
SMALL: Final = "20,000 tensors of 2 kB"
SAVE: Final = "a save to tmpfs"

_HOST_NBYTES: Final = 256 * 2**20 + 64 * 10**6
"""The default `host_budget`, and what else a load may take."""

Report = Mapping[str, Any]

_INTRODUCTION: Final = """\
# Benchmarks on a GPU

`make gpu` tests and measures loads to a GPU and saves from it, and writes this page; [Load to
devices](how-to/devices.md) says what they do. Each contender runs in a process of its own, once with a small file and
then {repeats} times with the real one. The median counts. **Limit** is the least work possible, measured likewise.
"""

_NOT_MEASURED: Final = """\
**Not measured yet.** No machine with a GPU has been available. These are the goals:
"""


class Goal(NamedTuple):
    """What a measurement should reach.

    Attributes:
        what: Name of the figure.
        bound: The least or the most that it should be.
        is_most: Whether it is the most.
        figure: Takes the results of all cases, and returns the figure; None if something was not measured.
    """

    what: str
    bound: float
    is_most: bool
    figure: Callable[[Report], float | None]

    def is_reached(self, found: float) -> bool:
        """Say whether a figure is good enough."""
        return found <= self.bound if self.is_most else found >= self.bound


def _found(cases: Report, case: str, contender: str) -> Mapping[str, float] | None:
    found: Mapping[str, float] | None = cases.get(case, {}).get("results", {}).get(contender)
    return found


def _ratio(case: str, ours: str, *peers: str) -> Callable[[Report], float | None]:
    """Return how the seconds of the slowest of some peers compare with ours."""

    def ratio(cases: Report) -> float | None:
        found = [_found(cases, case, name) for name in (ours, *peers)]
        seconds = [each["seconds"] for each in found if each is not None]
        return max(seconds[1:]) / seconds[0] if len(seconds) == len(found) else None

    return ratio


def _host_megabytes(cases: Report) -> float | None:
    found = _found(cases, LARGE, "tensorkeep")
    return None if found is None else found["host_nbytes"] / 1e6


def _device_part(cases: Report) -> float | None:
    found = _found(cases, LARGE, "tensorkeep")
    if found is None or not found["device_nbytes"]:
        return None
    return 100 * (found["device_peak_nbytes"] / found["device_nbytes"] - 1)


_LIMITS: Final = ("limit: pinned copies", "limit: reads")

GOALS: Final = (
    Goal(
        "bf16 in the page cache: speed, of the lower of both limits",
        0.9,
        False,
        _ratio(LARGE, "tensorkeep", *_LIMITS),
    ),
    Goal("the same, verified", 0.72, False, _ratio(LARGE, "tensorkeep, verified", *_LIMITS)),
    Goal("bf16 in the page cache: speed, of safetensors 0.8", 3, False, _ratio(LARGE, "tensorkeep", "safetensors")),
    Goal(
        "bf16 in the page cache: speed, of safetensors 0.9 with prefetch",
        1,
        False,
        _ratio(LARGE, "tensorkeep", "safetensors 0.9, prefetch"),
    ),
    Goal("20,000 small tensors: speed, of safetensors 0.8", 10, False, _ratio(SMALL, "tensorkeep", "safetensors")),
    Goal("host memory beside the page cache, MB", round(_HOST_NBYTES / 1e6), True, _host_megabytes),
    Goal("device memory beside the tensors, %", 2, True, _device_part),
    Goal(
        "save to tmpfs: speed, of copies to the host",
        0.8,
        False,
        _ratio(SAVE, "tensorkeep, save", "limit: copies to the host"),
    ),
)


def page(report: Report | None) -> str:
    """Write the page; of no report, what would be measured."""
    parts = [_INTRODUCTION.format(repeats="some" if report is None else report["repeats"])]
    parts += [_NOT_MEASURED] if report is None else [_machine(report)]
    parts.append("\n".join(_goal_lines({} if report is None else report["cases"])) + "\n")
    for case, found in ({} if report is None else report["cases"]).items():
        parts.append("\n".join(_case_lines(case, found)) + "\n")
    return "\n".join(parts)


def _machine(report: Report) -> str:
    machine = report["machine"]
    tested = f" The tests: {report['tests']}." if "tests" in report else ""
    return f"Measured on {machine['date']}: {machine['device']}, {machine['host']}, {machine['software']}.{tested}\n"


def _goal_lines(cases: Report) -> Iterator[str]:
    yield "| goal | | measured | |"
    yield "|---|---:|---:|---|"
    for goal in GOALS:
        found = goal.figure(cases)
        measured = "" if found is None else f"{found:,.3g}" if found < 100 else f"{found:,.0f}"
        verdict = "" if found is None else "reached" if goal.is_reached(found) else "**missed**"
        yield f"| {goal.what} | {'at most' if goal.is_most else 'at least'} {goal.bound:g} | {measured} | {verdict} |"


def _case_lines(case: str, found: Report) -> Iterator[str]:
    yield f"## {case[:1].upper()}{case[1:]}\n"
    yield f"{found['nbytes'] / 1e9:,.3g} GB in the file.\n"
    yield "| | seconds | GB/s | host memory, MB | device memory beside, MB |"
    yield "|---|---:|---:|---:|---:|"
    for name, figures in found["results"].items():
        speed = found.get("read_nbytes", found["nbytes"]) / figures["seconds"] / 1e9
        beside = max(0.0, figures["device_peak_nbytes"] - figures["device_nbytes"]) / 1e6
        yield (
            f"| {name} | {figures['seconds']:.3f} | {speed:.2f} "
            f"| {figures['host_nbytes'] / 1e6:,.0f} | {beside:,.0f} |"
        )


def main(arguments: list[str] | None = None) -> None:
    """Take results in, and write the page."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu_page", description="Write the page on GPUs.")
    parser.add_argument("results", type=Path, nargs="?", default=RESULTS, help="what benchmarks.gpu wrote")
    parser.add_argument("--commit", action="store_true", help="commit results and page")
    options = parser.parse_args(arguments)
    if options.results != RESULTS:
        shutil.copyfile(options.results, RESULTS)
    report = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else None
    PAGE.write_text(page(report), encoding="utf-8")
    if options.commit and report is not None:
        machine = report["machine"]
        said = f"Loads to a GPU and saves from it are measured: {machine['device']}, {machine['date']}"
        for command in (["add", str(RESULTS), str(PAGE)], ["commit", "-m", said, "--", str(RESULTS), str(PAGE)]):
            subprocess.run(["git", *command], check=True, cwd=PAGE.parents[1])


if __name__ == "__main__":
    main()

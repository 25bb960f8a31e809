"""Fuzz the header reader against the reference: `python -m fuzz.headers --count 200000 --seed 0`.

Exits with status 1 if any file raises an error that is not tensorkeep's, gives a verdict that differs from the
reference's in an unlisted way, is read with another meaning, or costs disproportionate time or memory.
"""

# ruff: noqa: S311, T201 - equal seeds must give equal files; this is a program that prints

from __future__ import annotations

import argparse
import gc
import re
import sys
import time
import tracemalloc
from collections import Counter, defaultdict
from random import Random

from fuzz.header_documents import Sample, valid_sample
from fuzz.header_mutations import MUTATIONS, mutated
from fuzz.header_verdicts import DIFFERENCES, judge

MAX_SECONDS = 1.0
"""For one file of a few kilobytes."""

MAX_PEAK_NBYTES = 4 * 2**20
"""Memory for one file of a few kilobytes; the reading itself needs some ten times the file."""


def _kind(failure: str) -> str:
    """Return the part of a message that failures with one cause share, without the file's own values."""
    return re.sub(r"\d+|`[^`]*`|\(.*|[\[{].*", "…", failure)[:100]


class Tally:
    """The outcomes so far."""

    def __init__(self) -> None:
        """Start empty."""
        self.verdicts: dict[str, Counter[str]] = defaultdict(Counter)
        self.differences: Counter[str] = Counter()
        self.failures: dict[str, list[str]] = defaultdict(list)
        self.slowest_s = 0.0
        self.largest_nbytes = 0

    def try_sample(self, sample: Sample) -> None:
        """Judge one file and count the outcome."""
        if tracemalloc.is_tracing():
            tracemalloc.reset_peak()
        before = tracemalloc.get_traced_memory()[0]
        begin = time.perf_counter()
        wrong: str | None
        try:
            verdict = judge(sample.file)
        except Exception as error:  # noqa: BLE001 - any error here is a finding
            outcome, wrong = "foreign error", f"{type(error).__name__}: {error}"
        else:
            outcome, wrong = "accepted" if verdict.accepted else "refused", verdict.wrong
            if verdict.difference:
                self.differences[verdict.difference] += 1
        seconds = time.perf_counter() - begin
        peak_nbytes = tracemalloc.get_traced_memory()[1] - before
        self.slowest_s = max(self.slowest_s, seconds)
        self.largest_nbytes = max(self.largest_nbytes, peak_nbytes)
        if seconds > MAX_SECONDS:
            wrong = f"took {seconds:.1f} s"
        elif peak_nbytes > MAX_PEAK_NBYTES:
            wrong = f"took {peak_nbytes:,} bytes for a file of {len(sample.file):,}"
        self.verdicts[sample.made_by][outcome] += 1
        if wrong:
            self.verdicts[sample.made_by]["wrong"] += 1
            self.failures[_kind(wrong)].append(f"{wrong[:300]}\n    {sample.made_by}: {sample.file[:300]!r}")

    def report(self) -> str:
        """Return the tables."""
        columns = ("accepted", "refused", "foreign error", "wrong")
        lines = [f"{'mutation':<18}" + "".join(f"{column:>15}" for column in columns)]
        lines += [
            f"{name:<18}" + "".join(f"{self.verdicts[name][column]:>15,}" for column in columns)
            for name in ("none", *(mutation.__name__ for mutation in MUTATIONS))
        ]
        lines += ["", f"{'difference':<18}{'files':>15}  reason"]
        lines += [f"{name:<18}{self.differences[name]:>15,}  {why}" for name, why in DIFFERENCES.items()]
        lines += ["", f"slowest file {self.slowest_s * 1e3:.1f} ms, largest peak {self.largest_nbytes:,} bytes"]
        for kind, failures in self.failures.items():
            lines += ["", f"{len(failures):,} times: {kind}", min(failures, key=len)]
        return "\n".join(lines)


def run(count: int, seed: int, *, traces_memory: bool = True) -> Tally:
    """Judge `count` files, one in ten of them valid.

    Args:
        count: Number of files.
        seed: Equal seeds give equal files.
        traces_memory: Whether to trace memory too, which takes three times as long.

    Returns:
        The outcomes.
    """
    rng = Random(seed)
    tally = Tally()
    if traces_memory:
        tracemalloc.start()
    for number in range(count):
        tally.try_sample(valid_sample(rng) if number % 10 == 0 else mutated(rng))
        if number % 10_000 == 0:
            gc.collect()
    tracemalloc.stop()
    return tally


def main() -> int:
    """Run from the command line; return the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--count", type=int, default=200_000, help="files to try (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="equal seeds give equal files (default: %(default)s)")
    arguments = parser.parse_args()
    begin = time.perf_counter()
    tally = run(arguments.count, arguments.seed)
    print(tally.report())
    print(f"{arguments.count:,} files, seed {arguments.seed}, {time.perf_counter() - begin:.0f} s")
    return 1 if tally.failures else 0


if __name__ == "__main__":
    sys.exit(main())

"""Broken files in batches, each in a process with limited memory; if it hangs or dies, each file is read alone."""

# ruff: noqa: S311 - equal seeds must give equal files

from __future__ import annotations

import json
import os
import resource
import select
import shutil
import signal
from collections import Counter
from pathlib import Path
from random import Random

from fuzz.kinds.mutations import mutated
from fuzz.kinds.reading import read_all
from fuzz.kinds.repairs import repaired
from fuzz.kinds.seeds import Seed

MAX_SECONDS = 2.0
"""Processor time for one file of a few kilobytes, opened, read, verified and scanned."""

MAX_NBYTES = 2**30
"""Address space that a process may take for a batch, beyond what it has at first."""

BATCH = 200
_TIMEOUT_S = 120
_ALONE_TIMEOUT_S = 20


class Tally:
    """The outcomes so far; files that failed are kept in `folder`, if there is one."""

    def __init__(self, folder: Path | None = None) -> None:
        """Start empty."""
        self.folder = folder
        self.outcomes: dict[str, Counter[str]] = {}
        self.failures: list[str] = []
        self.slowest_s = 0.0

    def add(self, seed: Seed, number: int, outcome: str, seconds: float) -> None:
        """Count the outcome of one broken file."""
        self.outcomes.setdefault(seed.kind, Counter())[outcome.partition(":")[0]] += 1
        self.slowest_s = max(self.slowest_s, seconds)
        if not (outcome == "value" or outcome.endswith("Error")) or outcome.startswith("FOREIGN"):
            self._fail(seed, number, outcome)
        elif seconds > MAX_SECONDS:
            self._fail(seed, number, f"took {seconds:.1f} s")

    def _fail(self, seed: Seed, number: int, what: str) -> None:
        self.failures.append(f"{seed.kind} {number}: {what}")
        if self.folder is not None:
            write_broken(seed, number, self.folder / f"{seed.kind}-{number}")

    def report(self) -> str:
        """Return the table."""
        lines = []
        for kind, outcomes in self.outcomes.items():
            counts = ", ".join(f"{outcome} {n:,}" for outcome, n in outcomes.most_common(6))
            lines.append(f"{kind:<32}{outcomes.total():>9,}  {counts}")
        lines.append(f"slowest {self.slowest_s:.2f} s, {len(self.failures):,} failures")
        return "\n".join([*lines, *sorted(self.failures, key=len)[:20]])


def run(seeds: list[Seed], count: int, first: int, folder: Path, tally: Tally) -> None:
    """Break and read `count` files of each kind.

    Args:
        seeds: The whole files.
        count: Files of each kind.
        first: Number of the first one; equal numbers give equal files.
        folder: Where they are written, one at a time.
        tally: Counts the outcomes.
    """
    for seed in seeds:
        for start in range(first, first + count, BATCH):
            numbers = range(start, min(start + BATCH, first + count))
            outcomes = _try(seed, numbers, folder, _TIMEOUT_S)
            for number, outcome in zip(numbers, outcomes or [None] * len(numbers), strict=True):
                alone = outcome or (_try(seed, range(number, number + 1), folder, _ALONE_TIMEOUT_S) or [None])[0]
                tally.add(seed, number, *(alone or ("DIED or hung", 0.0)))


def write_broken(seed: Seed, number: int, folder: Path) -> Path:
    """Write a broken copy of a checkpoint, and return the path to open.

    Args:
        seed: The whole checkpoint.
        number: Decides what is broken.
        folder: Where it is written; what was there is removed.
    """
    rng = Random(f"{seed.kind} {number}")
    weights = [len(content) ** 0.5 + 1 for content in seed.files.values()]
    (chosen,) = rng.choices(list(seed.files), weights)
    broken = mutated(rng, seed.files[chosen], list(seed.files.values()))
    if rng.random() < 1 / 2:
        broken = repaired(seed.files[chosen], broken)
    shutil.rmtree(folder, ignore_errors=True)
    for name, content in seed.files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(broken if name == chosen else content)
    return folder / seed.target


def _try(seed: Seed, numbers: range, folder: Path, timeout_s: int) -> list[tuple[str, float]] | None:
    """Read a batch in a separate process; return None if that died or hung."""
    receiver, sender = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(receiver)
        try:
            limit = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize() + MAX_NBYTES
            resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
            outcomes = [read_all(write_broken(seed, number, folder)) for number in numbers]
            with os.fdopen(sender, "w") as answers:
                json.dump(outcomes, answers)
            os._exit(0)
        finally:
            os._exit(70)
    os.close(sender)
    with os.fdopen(receiver) as answers:
        is_ready = bool(select.select([answers], [], [], timeout_s)[0])
        text = answers.read() if is_ready else ""
    if not is_ready:
        os.kill(child, signal.SIGKILL)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return [tuple(outcome) for outcome in json.loads(text)] if status == 0 and text else None

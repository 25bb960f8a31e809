"""Fuzz the reader of pickles: `python -m fuzz.pickles --pickles 1000000 --files 200000 --seed 0`.

Exits with status 1 if a pickle or file gives anything but a value or one of tensorkeep's errors, or exceeds a limit
of time or memory. Batches are read in a process with limited memory; if one hangs or dies, its pickles are read again
one by one, each in its own process.
"""

# ruff: noqa: S311, T201 - equal seeds must give equal files; this is a program that prints

from __future__ import annotations

import argparse
import json
import os
import resource
import select
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random

from fuzz.pickle_mutations import mutated, mutated_file
from fuzz.pickle_seeds import files, seeds
from fuzz.pickles_apart import Apart, Reader, read
from tensorkeep.errors import TensorkeepError

__all__ = ["MAX_NBYTES", "MAX_SECONDS", "Tally", "run", "try_one"]

MAX_SECONDS = 1.0
"""Processor time for one file of a few kilobytes."""

MAX_NBYTES = 512 * 2**20
"""Memory that a process may take for a batch, beyond what it has at first."""

BATCH = 2_000
_TIMEOUT_S = 60
_SHOWN = 400


class Tally:
    """The outcomes so far."""

    def __init__(self) -> None:
        """Start empty."""
        self.outcomes: Counter[str] = Counter()
        self.failures: list[str] = []
        self.slowest_s = 0.0

    def add(self, outcome: str, seconds: float, data: bytes) -> None:
        """Count the outcome of an input."""
        self.outcomes[outcome] += 1
        self.slowest_s = max(self.slowest_s, seconds)
        if not (outcome == "value" or outcome.endswith("Error")) or outcome.startswith("FOREIGN"):
            self.failures.append(f"{outcome}: {data[:_SHOWN]!r}")
        elif seconds > MAX_SECONDS:
            self.failures.append(f"took {seconds:.1f} s: {data[:_SHOWN]!r}")

    def report(self) -> str:
        """Return the table."""
        lines = [f"{outcome:<30}{n:>12,}" for outcome, n in self.outcomes.most_common()]
        lines += [f"slowest {self.slowest_s:.2f} s"]
        return "\n".join([*lines, f"{len(self.failures):,} failures", *sorted(self.failures, key=len)[:10]])


def try_one(data: bytes, reader: Reader) -> tuple[str, float]:
    """Read some bytes in this process.

    Args:
        data: The bytes.
        reader: What they are.

    Returns:
        The outcome, and the processor time in seconds.
    """
    outcome, seconds = _timed(data, reader)
    if (
        seconds > MAX_SECONDS
    ):  # the collector, or a thread of a library, may have been at work: what is slow is so again
        outcome, again = _timed(data, reader)
        seconds = min(seconds, again)
    return outcome, seconds


def _timed(data: bytes, reader: Reader) -> tuple[str, float]:
    begin = time.process_time()
    try:
        read(data, reader, "record")
        outcome = "value"
    except TensorkeepError as error:
        outcome = type(error).__name__
    except BaseException as error:  # noqa: BLE001 - any error here is a finding
        outcome = f"FOREIGN {type(error).__name__}: {str(error)[:100]}"
    return outcome, time.process_time() - begin


def run(count: int, seed: int, reader: Reader, tally: Tally) -> None:
    """Read mutated bytes in batches, in processes with limits.

    Args:
        count: Number of inputs.
        seed: Equal seeds give equal bytes.
        reader: `"machine"` for mutated pickles, `"file"` for mutated files.
        tally: Counts the outcomes.
    """
    maker = _maker(reader)
    for start in range(0, count, BATCH):
        batch_seed = seed * 1_000_003 + start
        size = min(BATCH, count - start)
        outcomes = _try_batch(maker, batch_seed, size, reader)
        rng = Random(batch_seed)
        if outcomes is None:
            with Apart(Path.cwd(), max_nbytes=MAX_NBYTES) as apart:
                for _ in range(size):
                    data = maker(rng)
                    alone = apart.read(data, reader, "record")
                    tally.add(alone.error or "value", alone.seconds, data)
        else:
            for outcome, seconds in outcomes:
                tally.add(outcome, seconds, maker(rng))


def _maker(reader: Reader) -> Callable[[Random], bytes]:
    if reader == "machine":
        pool = seeds()
        return lambda rng: mutated(rng, pool)
    whole = files()
    return lambda rng: mutated_file(rng, whole)


def _try_batch(
    maker: Callable[[Random], bytes], seed: int, size: int, reader: Reader
) -> list[tuple[str, float]] | None:
    """Read a batch in a separate process; return None if that died or hung."""
    receiver, sender = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(receiver)
        try:
            limit = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize() + MAX_NBYTES
            resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
            rng = Random(seed)
            outcomes = [try_one(maker(rng), reader) for _ in range(size)]
            with os.fdopen(sender, "w") as answers:
                json.dump(outcomes, answers)
            os._exit(0)
        finally:
            os._exit(70)
    os.close(sender)
    with os.fdopen(receiver) as answers:
        is_ready = bool(select.select([answers], [], [], _TIMEOUT_S)[0])
        text = answers.read() if is_ready else ""
    if not is_ready:
        os.kill(child, signal.SIGKILL)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return [tuple(outcome) for outcome in json.loads(text)] if status == 0 and text else None


def main() -> int:
    """Run from the command line; return the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--pickles", type=int, default=1_000_000, help="pickles to try (default: %(default)s)")
    parser.add_argument("--files", type=int, default=200_000, help="files to try (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="equal seeds give equal bytes (default: %(default)s)")
    arguments = parser.parse_args()
    failed = False
    counts: tuple[tuple[Reader, int], ...] = (("machine", arguments.pickles), ("file", arguments.files))
    for reader, count in counts:
        begin = time.perf_counter()
        tally = Tally()
        run(count, arguments.seed, reader, tally)
        print(tally.report())
        print(f"{count:,} by the {reader}, seed {arguments.seed}, {time.perf_counter() - begin:.0f} s", flush=True)
        failed = failed or bool(tally.failures)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

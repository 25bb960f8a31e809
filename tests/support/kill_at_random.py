"""Kills training at random times, and looks at what is left: for programs that the tests start.

Every other kill comes while a save is under way, however busy the machine is. The library is imported once, and every
run is a fork of that process, which itself never computes anything.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

Ready = Callable[[], None]

LONGEST_WAIT_S = 5.0
"""Seconds to wait for the next save."""


class Report(NamedTuple):
    """What came of it.

    Attributes:
        n_killed: Runs that were killed while they trained.
        n_ended: Runs that had ended before.
        n_interrupted: Kills that left something behind that a save was writing.
        progress: What was found after each kill.
    """

    n_killed: int
    n_ended: int
    n_interrupted: int
    progress: list[int]


def kill_at_random(
    train: Callable[[Path, Ready], None],
    look: Callable[[Path], int],
    directory: Path,
    *,
    first: Callable[[Path], object],
    times: int,
    seed: int,
    span_s: float,
    is_leftover: Callable[[str], bool] = lambda name: "tensorkeep-" in name,
) -> Report:
    """Start a training again and again, kill it, and look at its checkpoints after each kill.

    Args:
        train: Goes on from what is in the directory, and saves often. Calls its second argument when it has begun.
        look: Loads the newest checkpoint, fails if there is none or it is not whole, and returns how far it is.
        directory: Where the checkpoints are.
        first: A run that ends, and leaves one checkpoint that later ones could lose.
        times: Kills.
        seed: Of the times.
        span_s: Seconds after the beginning within which a run is killed, or the save after which kills it.
        is_leftover: Says of a file's name whether it is one of a save that was under way.
    """
    times_of = random.Random(seed)
    n_killed = n_ended = n_interrupted = 0
    progress: list[int] = []
    assert _ended(lambda: first(directory)) == 0, "the first run went wrong"

    def leftovers() -> set[str]:
        found = (name for _, folders, files in os.walk(directory) for name in (*folders, *files))
        return {name for name in found if is_leftover(name)}

    while len(progress) < times:
        writes = leftovers if len(progress) % 2 else None
        was_killed = _run_killed(train, directory, times_of.uniform(0, span_s), writes)
        n_killed += was_killed
        n_ended += not was_killed
        n_interrupted += was_killed and bool(leftovers())
        progress.append(_looked(look, directory))
        assert progress == sorted(progress), f"a checkpoint that was there is lost: {progress[-2:]}"
    return Report(n_killed, n_ended, n_interrupted, progress)


def _run_killed(
    train: Callable[[Path, Ready], None], directory: Path, after_s: float, writes: Callable[[], set[str]] | None
) -> bool:
    """Start a run and kill it so many seconds after it has begun, or in the next save; return whether it had to be.

    Args:
        train: The run.
        directory: Where it saves.
        after_s: Seconds.
        writes: Names of files that saves are writing; None to kill it wherever it is.
    """
    reader, writer = os.pipe()
    pid = _fork(lambda: train(directory, lambda: os.write(writer, b".") and None))
    os.close(writer)
    has_begun = os.read(reader, 1)
    os.close(reader)
    if has_begun:
        time.sleep(after_s)
        if writes:
            _wait_for_more(writes)
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    assert status in {0, -signal.SIGKILL}, f"a run went wrong: {status}"
    return status != 0


def _wait_for_more(names: Callable[[], set[str]]) -> None:
    before, until = names(), time.monotonic() + LONGEST_WAIT_S
    while names() <= before and time.monotonic() < until:
        time.sleep(0.0005)


def _looked(look: Callable[[Path], int], directory: Path) -> int:
    reader, writer = os.pipe()
    pid = _fork(lambda: os.write(writer, str(look(directory)).encode()))
    os.close(writer)
    said = os.read(reader, 100)
    os.close(reader)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    assert status == 0, "what a killed run left is not whole"
    return int(said)


def _ended(job: Callable[[], object]) -> int:
    """Let a job run to its end, and return how it ended."""
    return os.waitstatus_to_exitcode(os.waitpid(_fork(job), 0)[1])


def _fork(job: Callable[[], object]) -> int:
    pid = os.fork()
    if pid:
        return pid
    try:
        job()
        sys.stdout.flush()
        os._exit(0)
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(1)

"""A program that stops saves of checkpoints and kills them, for `test_killed_checkpoint_saves`.

`interrupted_saver.py FOLDER SCENARIO FIRST STEP`: stops a save before every STEP-th call that changes the file
system, from the FIRST, and in the middle of it if it writes. While it is stopped, and again after it was killed, the
directory is read; then one more save must succeed and leave nothing behind.

`interrupted_saver.py FOLDER --at-random ROUNDS SEED`: kills a process that saves again and again, at random times.

Prints one line of JSON.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import shutil
import signal
import sys
import threading
import time
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tensorkeep.checkpoint import StrayShardWarning
from tests.support.checkpoint.numbered_saves import (
    FIVE,
    SCENARIOS,
    SINGLE,
    THREE,
    Scenario,
    add_bystanders,
    contents,
    save,
    whole,
    whole_for_others,
)

WRITES = ("writev", "write", "pwrite", "copy_file_range", "sendfile")
CALLS = (
    *WRITES,
    *("open", "ftruncate", "posix_fallocate", "fsync", "replace", "rename", "unlink", "mkdir", "rmdir", "fchmod"),
)
OLD, NEW, NEXT = 1, 2, 3
COMPLETED, NOT_A_WRITE = 7, 8
"""Exit status of a save that got through, and of one that came to a call of which there is no half."""


class Stopper:
    """Counts the calls that change the file system, and stops the process before one of them.

    Args:
        at: Number of the call to stop before, from 0.
        torn: Whether half of it is still done; it must be one that writes.
    """

    def __init__(self, at: int, *, torn: bool) -> None:
        self._at = at
        self._torn = torn
        self._count = itertools.count()
        self._lock = threading.Lock()

    def install(self) -> None:
        for name in CALLS:
            setattr(os, name, self._counting(name, getattr(os, name)))

    def _counting(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*args: Any, **kwargs: Any) -> Any:
            changes = name != "open" or args[1] & os.O_CREAT
            if not changes:
                return call(*args, **kwargs)
            with self._lock:
                if next(self._count) == self._at:
                    if self._torn:
                        self._tear(name, call, args)
                    os.kill(os.getpid(), signal.SIGSTOP)
            return call(*args, **kwargs)

        return counted

    @staticmethod
    def _tear(name: str, call: Callable[..., Any], args: tuple[Any, ...]) -> None:
        """Do the first half of a write."""
        if name == "writev":
            data = b"".join(args[1])
            os_write(args[0], data[: len(data) // 2])
        elif name in {"write", "pwrite"}:
            call(args[0], args[1][: len(args[1]) // 2], *args[2:])
        else:
            os._exit(NOT_A_WRITE)


os_write = os.write


def stopped(act: Callable[[], None], at: int, *, torn: bool) -> int | None:
    """Do something in a child process that stops before a call, or in the middle of a write.

    Returns:
        Its pid; None if it got through, or the call has no middle.
    """
    pid = os.fork()
    if not pid:
        Stopper(at, torn=torn).install()
        try:
            act()
        except BaseException as error:
            print(repr(error), file=sys.stderr)
            os._exit(1)
        os._exit(COMPLETED)
    _, status = os.waitpid(pid, os.WUNTRACED)
    if os.WIFSTOPPED(status):
        return pid
    assert os.waitstatus_to_exitcode(status) in {COMPLETED, NOT_A_WRITE}, status
    return None


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == -signal.SIGKILL


def whole_for_another_user(directory: Path, variant: str | None) -> int:
    """Read without the right to write there, which only root can try."""
    pid = os.fork()
    if not pid:
        try:
            os.chdir(directory)  # what stands above it may be closed to others
            os.setgroups([])
            os.setgid(65534)
            os.setuid(65534)
            os._exit(whole(".", variant) or 0)
        except BaseException as error:
            print(repr(error), file=sys.stderr)
            os._exit(255)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def at_calls(folder: Path, scenario: Scenario, first: int, step: int) -> dict[str, Any]:
    """Stop and kill a save before every `step`-th call in turn, and in the middle of it."""
    template = folder / "template"
    template.mkdir()
    bystanders = add_bystanders(template, main=scenario.variant is not None)
    if scenario.old is not None:
        save(template, OLD, scenario.old, scenario.variant)
    expected_files = bystanders.keys() | scenario.files
    allowed = {OLD if scenario.old else None, NEW}
    counts: Counter[str] = Counter()
    for at in itertools.count(first, step):
        for torn in (False, True):
            directory = folder / f"{at}{'t' if torn else ''}"
            shutil.copytree(template, directory)
            pid = stopped(lambda: save(directory, NEW, scenario.new, scenario.variant), at, torn=torn)  # noqa: B023 - called at once
            if pid is None and torn:
                continue
            if pid is None:
                assert whole(directory, scenario.variant) == NEW
                assert contents(directory).keys() == expected_files
                return dict(counts)
            try:
                during = whole(directory, scenario.variant)
                assert during in allowed, f"while stopped: {during}"
                others = whole_for_others(directory, scenario.variant)
                assert others in allowed | {None}, f"others while stopped: {others}"
            finally:
                kill(pid)
            others = whole_for_others(directory, scenario.variant)
            assert others in allowed | {None}, f"others after the kill: {others}"
            if os.geteuid() == 0:
                before = whole_for_another_user(directory, scenario.variant) or None
                assert before in allowed, f"for another user: {before}"
            after = whole(directory, scenario.variant)
            assert after in allowed, f"after the kill: {after}"
            assert during in {OLD, None} or after == NEW, "a reader saw the new checkpoint, and then it was gone"
            if after == NEW:
                assert whole_for_others(directory, scenario.variant) == NEW
            save(directory, NEXT, {**scenario.new, "durable": False}, scenario.variant)
            assert whole(directory, scenario.variant) == NEXT
            left = contents(directory)
            assert left.keys() == expected_files, f"left over: {sorted(left.keys() ^ expected_files)}"
            assert {name: left[name] for name in bystanders} == bystanders
            counts["kills"] += 1
            counts["old" if after == OLD or after is None else "new"] += 1
            counts["others saw nothing"] += others is None
            shutil.rmtree(directory)
    raise AssertionError


def at_random(folder: Path, n_rounds: int, seed: int) -> dict[str, Any]:
    """Kill a process that saves again and again, at random times."""
    rng = random.Random(seed)
    bystanders = add_bystanders(folder, main=False)
    sides = [SINGLE, THREE, FIVE, THREE, THREE, {**SINGLE, "sha256": True}]
    save(folder, 0, THREE)
    before = 0
    counts: Counter[str] = Counter()
    for _ in range(n_rounds):
        pid = os.fork()
        if not pid:
            for number in itertools.count(before + 1):
                save(folder, number, {**rng.choice(sides), "durable": number % 2 == 0})
        time.sleep(rng.random() * 0.05)
        kill(pid)
        counts["kills"] += 1
        counts["leftovers"] += any(name.endswith(".tensorkeep-staging") for name in os.listdir(folder))
        number = whole(folder)
        assert number is not None
        assert number >= before, f"{number} after {before}"
        counts["new" if number > before else "old"] += 1
        before = number
        if rng.random() < 0.5:
            before += 1
            save(folder, before, THREE)
            left = contents(folder)
            expected = bystanders.keys() | SCENARIOS["three shards over the same names"].files
            assert left.keys() == expected, f"left over: {sorted(left.keys() ^ expected)}"
            assert {name: left[name] for name in bystanders} == bystanders
    return dict(counts)


if __name__ == "__main__":
    warnings.simplefilter("error")
    warnings.simplefilter("ignore", StrayShardWarning)  # of the bystanders
    place = Path(sys.argv[1])
    if sys.argv[2] == "--at-random":
        result = at_random(place, int(sys.argv[3]), int(sys.argv[4]))
    else:
        result = at_calls(place, SCENARIOS[sys.argv[2]], int(sys.argv[3]), int(sys.argv[4]))
    print(json.dumps(result))

"""Fetches in processes of their own, to be killed: each run is a fork, so that it begins at once."""

from __future__ import annotations

import os
import signal
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path

from tensorkeep.fetching._journal import decode_journal
from tensorkeep.transport import ByteRange


def run(work: Callable[[], object]) -> int:
    """Do something in another process, and return its number; it ends with 0 if nothing was raised."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            work()
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(code)
    return pid


def kill_after(pid: int, seconds: float) -> bool:
    """Kill a process after some time; return whether it was still running."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            assert os.waitstatus_to_exitcode(status) == 0, "the fetch failed by itself"
            return False
        time.sleep(0.002)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return True


def recorded(directory: Path) -> dict[str, list[ByteRange]]:
    """Return what a fetch that was killed has recorded: name of a file to its ranges."""
    journals = list(directory.rglob("*.tensorkeep-fetch/journal"))
    assert len(journals) <= 1
    return decode_journal(journals[0].read_bytes()).spans if journals else {}

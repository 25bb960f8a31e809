"""Locks in children that are forked while a thread holds them."""

from __future__ import annotations

import os
import signal
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

import tensorkeep
from tensorkeep.formats.archives import _inflate
from tensorkeep.locks import ReadLock

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="Windows does not fork")


def test_a_lock_is_free_in_a_forked_child() -> None:
    lock = ReadLock()
    with lock:
        pid = os.fork()
        if not pid:
            signal.alarm(20)
            for _ in range(2):
                with lock:
                    pass
            with lock:
                os._exit(int(lock._lock.acquire(blocking=False)))  # it is a lock there, too
        assert os.waitpid(pid, 0)[1] == 0
        assert not lock._lock.acquire(blocking=False)


def test_a_child_that_is_forked_during_a_read_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    np.savez_compressed(tmp_path / "a.npz", a=np.ones(1000))
    tensors = tensorkeep.open(tmp_path / "a.npz")
    has_begun, is_over, stream = threading.Event(), threading.Event(), _inflate._Stream
    parent = os.getpid()

    def waiting(*given: object) -> object:
        if os.getpid() == parent:
            has_begun.set()
            is_over.wait(20)
        return stream(*given)

    monkeypatch.setattr(_inflate, "_Stream", waiting)
    thread = threading.Thread(target=tensors["a"].load)
    thread.start()
    assert has_begun.wait(20)
    pid = os.fork()
    if not pid:
        signal.alarm(20)
        os._exit(int(tensors["a"].load().sum() != 1000))
    status = os.waitpid(pid, 0)[1]
    is_over.set()
    thread.join()
    assert status == 0

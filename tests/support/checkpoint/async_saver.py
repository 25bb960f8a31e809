"""Programs that save in the background, for `test_save_async`: `async_saver.py WHAT PATH [NUMBER]`."""

from __future__ import annotations

import atexit
import itertools
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

import tensorkeep
from tensorkeep.checkpoint.saving._save_async import save_async
from tensorkeep.checkpoint.saving._save_queue import SaveHandle
from tensorkeep.checkpoint.saving._snapshot import release_snapshots
from tensorkeep.errors import TransportError

N_ELEMENTS = 3_000_000


def state(number: int) -> dict[str, Any]:
    """Return a state all of whose numbers are the same, so that no two can be taken for each other."""
    return {"step": number, "model": {"w": np.full(N_ELEMENTS, number, np.int32), "b": np.full(7, number, np.int64)}}


def number_of(path: str | Path) -> int:
    """Return the number of a state that was saved; it must be whole."""
    found = tensorkeep.verify(path)
    assert found.is_whole, found.findings
    loaded = tensorkeep.load(path)
    number: int = loaded["step"]
    assert (loaded["model"]["w"] == number).all()
    assert (loaded["model"]["b"] == number).all()
    return number


def begin(path: str, number: int, **options: Any) -> SaveHandle:
    """Save so slowly that whoever does not wait is too early."""
    return save_async(state(number), path, progress=lambda done, of: time.sleep(0.1), **options)


def end(path: str, number: int) -> None:
    begin(path, number)


def fail(path: str, number: int) -> None:
    begin(path, number)
    raise RuntimeError("training failed")


def leave(path: str, number: int) -> None:
    begin(path, number)
    sys.exit(3)


def end_with_others_waiting(path: str, number: int) -> None:
    for waiting in range(3):
        begin(path, number - 2 + waiting, max_waiting=2)


def save_at_the_end(path: str, number: int) -> None:
    begin(path, number - 1)
    atexit.register(
        lambda: save_async({"step": number, "model": {"w": np.full(3, number), "b": np.int64(number)}}, path)
    )


def ask_nobody(path: str, number: int) -> None:
    begin(os.path.join(path, "missing", "x.safetensors"), number)


def ask(path: str, number: int) -> None:
    error = begin(os.path.join(path, "missing", "x.safetensors"), number).exception()
    print(type(error).__name__)


def wait_for_an_interrupt(path: str, number: int) -> None:
    save_async(state(number), path, progress=lambda done, of: time.sleep(1000))
    print("begun", flush=True)


def fork(path: str, number: int) -> None:
    handle = begin(path, number)
    pid = os.fork()
    if not pid:
        assert handle.done()
        print(type(handle.exception()).__name__, flush=True)
        begin(f"{path}.child.safetensors", number + 1).result()
        sys.exit(5)
    assert not handle.done()
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 5
    handle.result()


def again_and_again(path: str, number: int) -> None:
    print("begun", flush=True)
    for each in itertools.count(number):
        save_async(state(each), path, durable=each % 2 == 0, max_waiting=each % 3)


def on_a_small_disk(directory: str, number: int) -> None:
    """Save on a file system that has room for one file and a half, in a mount namespace of its own."""
    nbytes = 4 * N_ELEMENTS * 3 // 2
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={nbytes}", "tmpfs", directory], check=True)
    path = os.path.join(directory, "x.safetensors")
    save_async(state(number), path).result()
    handle = save_async(state(number + 1), path)
    handle.wait()
    for act in (lambda: save_async(state(number + 2), path), handle.result):
        try:
            act()
        except TransportError as error:
            print(error.errno, number_of(path), os.listdir(directory))
    small = {"step": number + 3, "model": {"w": np.full(3, number + 3), "b": np.full(3, number + 3)}}
    save_async(small, path).result()
    print(number_of(path))


def resident_nbytes() -> int:
    found = re.search(r"VmRSS:\s+(\d+)", Path("/proc/self/status").read_text())
    assert found
    return int(found[1]) * 1024


def tell_memory(path: str, number: int) -> None:
    """Save some bytes three times, and print how many more there are then, and when the memory was released."""
    tensors = {f"w{n}": np.ones(number // 10 // 4, np.float32) for n in range(10)}
    before = resident_nbytes()
    for _ in range(3):
        save_async(tensors, path, durable=False).result()
    kept = resident_nbytes() - before
    release_snapshots()
    print(kept, resident_nbytes() - before)


def tell_memory_of_an_error(path: str, number: int) -> None:
    """Fail to save some bytes, and print how many more there are while the error is at hand."""

    def give_up(done: int, of: int) -> None:
        raise ValueError("given up") from KeyError("of")

    tensors = {"w": np.ones(number // 4, np.float32)}
    before = resident_nbytes()
    error = save_async(tensors, path, progress=give_up).exception()
    assert error is not None
    release_snapshots()
    print(resident_nbytes() - before)


if __name__ == "__main__":
    globals()[sys.argv[1]](sys.argv[2], int(sys.argv[3]))

"""A program that stops fetches and kills them, for `test_fetch_interrupted`.

`interrupted_fetch.py FOLDER KIND STEP`: stops a fetch before every STEP-th call that changes the file system, and in
the middle of that write, over an older checkpoint; KIND is `set` or `folder`. After each kill the old or the new one
is there, whole; and the next fetch brings the new one, and leaves nothing behind. Prints one line of JSON.
"""

from __future__ import annotations

import itertools
import json
import os
import shutil
import sys
import traceback
from collections import Counter
from functools import partial
from pathlib import Path

import numpy as np

import tensorkeep
from tensorkeep import remote
from tensorkeep.checkpoint import save_folder, verify_folder
from tensorkeep.transport import recover_directories
from tests.support.checkpoint.interrupted_saver import kill, stopped
from tests.support.fetching.fetch_runs import run
from tests.support.remote.fault_server import FaultServer

OLD, NEW = 1, 2


def save(directory: Path, kind: str, number: int) -> None:
    weights = {f"w{n}": np.full(5000, number) for n in range(2)}
    if kind == "set":
        tensorkeep.save_checkpoint(weights, directory, max_shard_size=40_000)
        return
    with save_folder(directory) as staging:
        tensorkeep.save(weights, f"{staging}/state.safetensors")
        Path(staging, "inner").mkdir()
        Path(staging, "inner", "number").write_text(str(number))


def number_in(directory: Path, kind: str) -> int:
    """Return which checkpoint is there, all of it; in a process of its own, since a fork loses threads of digests."""
    pid = os.fork()
    if pid == 0:
        try:
            os._exit(_number_in(directory, kind))
        except BaseException:
            traceback.print_exc()
            os._exit(99)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def _number_in(directory: Path, kind: str) -> int:
    if kind == "set":
        assert tensorkeep.verify(directory).is_whole
        numbers = {int(each) for value in tensorkeep.load(directory).values() for each in value}
    else:
        recover_directories(directory.parent)
        assert verify_folder(directory) == []
        numbers = {int((directory / "inner" / "number").read_text())}
        numbers |= {
            int(each) for value in tensorkeep.load(directory / "state.safetensors").values() for each in value
        }
    (number,) = numbers
    return number


def contents(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def main(folder: Path, kind: str, step: int) -> Counter[str]:
    save(folder / "served", kind, NEW)
    template = folder / "template"
    template.mkdir()
    save(template / "x", kind, OLD)
    (template / "x" / "mine.txt").write_text("mine")
    served = contents(folder / "served")
    counts: Counter[str] = Counter()
    with FaultServer({f"m/{name}": data for name, data in served.items()}) as server:
        url = remote(server.url + "m/", connections=1)
        for at in itertools.count(0, step):
            for torn in (False, True):
                place = folder / f"{at}{'t' if torn else ''}"
                shutil.copytree(template, place)
                fetch = partial(tensorkeep.fetch, url, place / "x", overwrite=True)
                pid = stopped(fetch, at, torn=torn)
                if pid is None and torn:
                    shutil.rmtree(place)
                    continue
                if pid is None:
                    assert contents(place) == {f"x/{name}": data for name, data in served.items()} | mine()
                    return counts
                kill(pid)
                number = number_in(place / "x", kind)
                assert number in {OLD, NEW}
                counts["kills"] += 1
                counts["new" if number == NEW else "old"] += 1
                assert os.waitpid(run(fetch), 0)[1] == 0
                assert number_in(place / "x", kind) == NEW
                assert contents(place) == {f"x/{name}": data for name, data in served.items()} | mine()
                shutil.rmtree(place)
    raise AssertionError


def mine() -> dict[str, bytes]:
    return {"x/mine.txt": b"mine"}


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))))

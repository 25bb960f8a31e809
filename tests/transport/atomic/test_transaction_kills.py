"""Saves of sets that are killed at any call: the old set or the new one, whole, and no leftovers after the next."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tensorkeep.transport import finish_pending_commit
from tests.support import SUPPORT
from tests.support.transport.sets import CASES

KILLER = SUPPORT / "transport" / "killer.py"


@pytest.mark.parametrize("case", CASES)
def test_a_save_killed_at_any_call_leaves_the_old_set_or_the_new_one(tmp_path: Path, case: str) -> None:
    done = subprocess.run(
        [sys.executable, str(KILLER), str(tmp_path), case], capture_output=True, text=True, check=False
    )

    assert done.returncode == 0, done.stderr
    outcomes = json.loads(done.stdout)
    single = case == "one to the same"
    assert outcomes["save"].keys() == {"old", "new"}
    assert outcomes["save"]["old"] >= (8 if single else 15)
    assert outcomes["save"]["new"] >= (4 if single else 8)
    assert outcomes["save, within writes"].keys() == {"old", "new"} if "place" in case else {"old"}
    assert outcomes["finish"].keys() == outcomes["finish, within writes"].keys() == (set() if single else {"new"})
    assert outcomes["finish"].get("new", 0) >= (0 if single else 8)


WRITER = """
import itertools, sys
from tensorkeep.transport import transaction
folder = sys.argv[1]
for number in itertools.count(1):
    names = [f"m-{n}-of-{1 + number % 3}" for n in range(1 + number % 3)]
    old = [f"m-{n}-of-{1 + (number - 1) % 3}" for n in range(1 + (number - 1) % 3)] if number % 2 else []
    with transaction(folder, "model", durable=False) as saving:
        for name in names:
            with saving.file(name) as sink:
                sink.write([f"{number}".encode()])
        with saving.file("index") as sink:
            sink.write([" ".join([str(number), *names]).encode()])
        saving.commit(last="index", remove=old)
"""


def opened_set(folder: Path) -> list[int] | None:
    """Read a set as a reader does: again if the index was replaced meanwhile; None if it was."""
    pending = finish_pending_commit(folder, "model")

    def content(name: str) -> str:
        for _ in range(3):
            try:
                return Path(pending.resolve(name) if pending else folder / name).read_text()
            except FileNotFoundError:  # moved to its place in this instant, or replaced
                continue
        return "-1"

    index = content("index")
    number, *names = index.split()
    numbers = [int(number), *(int(content(name)) for name in names)]
    again = finish_pending_commit(folder, "model")
    path = again.resolve("index") if again else folder / "index"
    try:
        return numbers if (again is None) == (pending is None) and Path(path).read_text() == index else None
    except FileNotFoundError:
        return None


def test_readers_beside_a_writer_never_see_a_mixture(tmp_path: Path) -> None:
    (tmp_path / "index").write_text("0")
    writer = subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path)])
    seen: set[int] = set()
    try:
        until = time.monotonic() + 1.5
        while time.monotonic() < until or len(seen) < 10:
            numbers = opened_set(tmp_path)
            if numbers is not None:
                assert len(set(numbers)) == 1, numbers
                seen.add(numbers[0])
            assert time.monotonic() < until + 20, "hardly any set could be read"
    finally:
        writer.kill()
        writer.wait()

    assert len(seen) >= 10
    finish_pending_commit(tmp_path, "model")
    assert "index" in os.listdir(tmp_path)

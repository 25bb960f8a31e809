"""Saving processes that are killed, interrupted, or run out of room: the old file or the new one, never a part."""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

import tensorkeep
from tensorkeep.errors import TransportError
from tensorkeep.transport.system import _platform
from tests.support import SUPPORT
from tests.support.soak import SEED, rounds

SAVER = SUPPORT / "transport" / "saver.py"
N_KILLS = rounds(18, 5000)


@pytest.mark.soak
def test_a_killed_save_leaves_the_old_file_or_the_new_one(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(SAVER), str(tmp_path), str(N_KILLS), str(SEED)],
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["kills"] == N_KILLS
    assert result["leftovers"] >= N_KILLS // 9, "the kills came too early or too late to say anything"
    assert result["unswept"] == 0
    assert os.listdir(tmp_path) == ["model.safetensors"]


class Interrupted(Exception):
    pass


def test_a_save_that_a_signal_breaks_off_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    old, new = {"w": np.zeros(10)}, {f"w{n}": np.full((500, 1_000), n, np.float32).T for n in range(20)}

    def interrupt(*_: object) -> None:
        raise Interrupted

    before = signal.signal(signal.SIGALRM, interrupt)
    broken_off = 0
    try:
        for delay in range(1, 20):
            tensorkeep.save(old, path, durable=False)

            def arm(done: int, of: int, *, seconds: float = delay / 2_000) -> None:
                signal.setitimer(signal.ITIMER_REAL, seconds if done < of // 2 else 0)

            try:
                tensorkeep.save(new, path, durable=False, progress=arm)
            except Interrupted:
                broken_off += 1
            except KeyError as error:  # what `Thread.start` may make of an exception that comes in the midst of it
                if not isinstance(error.__context__, Interrupted):
                    raise
                broken_off += 1
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
            assert len(tensorkeep.open(path)) in {1, 20}
            assert os.listdir(tmp_path) == ["model.safetensors"]
    finally:
        signal.signal(signal.SIGALRM, before)

    assert broken_off >= 1


ON_A_FULL_DISK = """
import os, sys
import numpy as np
import tensorkeep
from tensorkeep.errors import TransportError
from tensorkeep.transport.system import _platform
folder, reserves = sys.argv[1:]
_platform.HAS_FALLOCATE = reserves == "True"
path = os.path.join(folder, "model.safetensors")
tensorkeep.save({"w": np.arange(100)}, path)
many, transposed = {f"w{n}": np.zeros(1_000) for n in range(1_000)}, np.zeros((2, 500_000)).T
for tensors in ({"w": np.zeros(1_000_000)}, many, {"w": transposed}):
    try:
        tensorkeep.save(tensors, path)
    except TransportError as error:
        print(error.errno, error.path == path, os.listdir(folder), tensorkeep.load(path)["w"].sum())
"""


@pytest.mark.parametrize("reserves", [True, False])
def test_a_full_disk_is_an_error_and_the_old_file_stays(tmp_path: Path, reserves: bool) -> None:
    script = tmp_path / "on_a_full_disk.py"
    script.write_text(ON_A_FULL_DISK)
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = f"mount -t tmpfs -o size=2m tmpfs {disk} || exit 77; exec {sys.executable} {script} {disk} {reserves}"
    if shutil.which("unshare") is None:
        pytest.skip("no unshare(1) to mount a small disk with")
    done = subprocess.run(
        ["unshare", "--mount", "--map-root-user", "sh", "-c", mounted], capture_output=True, text=True, check=False
    )
    if done.returncode in {1, 77} and "Traceback" not in done.stderr:
        pytest.skip(f"no rights to mount a small disk: {done.stderr}")

    assert done.stdout.splitlines() == ["28 True ['model.safetensors'] 4950"] * 3, done.stderr


UNDER_A_LIMIT = """
import os, resource, sys
import numpy as np
import tensorkeep
from tensorkeep.errors import TransportError
from tensorkeep.transport.system import _platform
folder, reserves = sys.argv[1:]
_platform.HAS_FALLOCATE = reserves == "True"
path = os.path.join(folder, "model.safetensors")
tensorkeep.save({"w": np.arange(100)}, path)
resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_003, resource.RLIM_INFINITY))
try:
    tensorkeep.save({"w": np.zeros(1_000_000)}, path)
except TransportError as error:
    print(error.errno, os.listdir(folder), tensorkeep.load(path)["w"].sum())
"""


@pytest.mark.parametrize("reserves", [True, False])
def test_a_limit_on_the_size_of_files_is_an_error_and_the_old_file_stays(tmp_path: Path, reserves: bool) -> None:
    done = subprocess.run(
        [sys.executable, "-c", UNDER_A_LIMIT, str(tmp_path), str(reserves)],
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.stdout.splitlines() == ["27 ['model.safetensors'] 4950"], done.stderr


def test_too_many_open_files_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    tensorkeep.save({"w": np.arange(100)}, path)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    held = []
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (64, hard))
        with suppress(OSError):
            while True:
                held.append(os.open(path, os.O_RDONLY))
        with pytest.raises(TransportError, match="Too many open files"):
            tensorkeep.save({"w": np.arange(3)}, path)
        with pytest.raises(TransportError, match="Too many open files"):
            tensorkeep.open(path)
    finally:
        for fd in held:
            os.close(fd)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

    assert tensorkeep.load(path)["w"].sum() == 4950


def test_portable_fallbacks_save_and_load_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    tensors = {f"w{n}": rng.integers(0, 255, (n, 300_000 // (n + 1)), np.uint8).T for n in range(1, 40)}
    tensorkeep.save(tensors, tmp_path / "native")
    for flag in ("HAS_POSITIONED_IO", "HAS_GATHERED_WRITES", "HAS_FALLOCATE"):
        monkeypatch.setattr(_platform, flag, False)
    tensorkeep.save(tensors, tmp_path / "portable")

    assert (tmp_path / "native").read_bytes() == (tmp_path / "portable").read_bytes()
    loaded = tensorkeep.load(tmp_path / "portable", backend="pread")
    for name, tensor in tensors.items():
        np.testing.assert_array_equal(loaded[name], tensor, strict=True)
        np.testing.assert_array_equal(
            tensorkeep.open(tmp_path / "native", backend="pread")[name][::2, -1], tensor[::2, -1]
        )

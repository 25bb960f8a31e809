"""When the system fails in the middle of a save, the old checkpoint is as it was, and one error says what failed."""

from __future__ import annotations

import errno
import itertools
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import tensorkeep
from tensorkeep.errors import SourceMissingError, TensorkeepError, TransportError
from tensorkeep.transport.system import _platform
from tests.support import SUPPORT
from tests.support.checkpoint.numbered_saves import (
    FIVE,
    SCENARIOS,
    SINGLE,
    THREE,
    add_bystanders,
    contents,
    save,
    whole,
)


@pytest.mark.parametrize("reserves", [True, False])
def test_a_full_disk_at_any_shard_leaves_every_byte(tmp_path: Path, reserves: bool) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    if shutil.which("unshare") is None:
        pytest.skip("no unshare(1) to mount a small disk with")
    script = SUPPORT / "checkpoint" / "save_on_a_small_disk.py"
    may_mount = subprocess.run(
        ["unshare", "--mount", "--map-root-user", "mount", "-t", "tmpfs", "tmpfs", str(disk)],
        capture_output=True,
        check=False,
    )
    if may_mount.returncode:
        pytest.skip(f"no rights to mount a small disk: {may_mount.stderr!r}")
    done = subprocess.run(
        ["unshare", "--mount", "--map-root-user", sys.executable, script, disk, str(reserves)],
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    failures = [json.loads(line) for line in done.stdout.splitlines()]
    assert all(failure["errno"] == errno.ENOSPC for failure in failures), failures
    assert all(failure["as before"] and failure["number"] == 1 for failure in failures), failures
    assert all(str(disk) in failure["message"] and "No space left" in failure["message"] for failure in failures)
    assert {failure["shards written"] for failure in failures} == {0, 1, 2, 3, 4}, "not every shard was the one"


CALLS = ("open", "writev", "pwrite", "posix_fallocate", "fsync", "replace", "unlink", "mkdir", "rmdir", "fstat",
         "fchmod", "listdir", "scandir", "ftruncate", "write")  # fmt: skip


def fail_at(patch: pytest.MonkeyPatch, at: int, number: int) -> Callable[[], str | None]:
    """Make the call of that number fail, and return a function that says which one it was."""
    count = itertools.count()
    failed: list[str] = []

    def failing(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*args: Any, **kwargs: Any) -> Any:
            if next(count) == at:
                failed.append(name)
                raise OSError(number, os.strerror(number))
            return call(*args, **kwargs)

        return counted

    for name in CALLS:
        patch.setattr(os, name, failing(name, getattr(os, name)))
    return lambda: failed[0] if failed else None


@pytest.mark.parametrize(
    ("side", "number", "files"),
    [
        (THREE, errno.EIO, SCENARIOS["three shards over the same names"].files),
        (FIVE, errno.ENOSPC, SCENARIOS["five shards over three"].files),
        (SINGLE, errno.EROFS, SCENARIOS["a single file over shards"].files),
    ],
    ids=["three over three", "five over three", "one over three"],
)
def test_any_call_that_fails_leaves_the_old_or_the_new_checkpoint(
    tmp_path: Path, side: Any, number: int, files: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    template = tmp_path / "template"
    template.mkdir()
    bystanders = add_bystanders(template, main=False)
    save(template, 1, THREE)
    seen: Counter[str] = Counter()
    for at in itertools.count():
        directory = tmp_path / str(at)
        shutil.copytree(template, directory)
        before = contents(directory)
        error: TensorkeepError | None = None
        with monkeypatch.context() as patch:
            failed = fail_at(patch, at, number)
            try:
                save(directory, 2, side)
            except TensorkeepError as caught:
                error = caught
            call = failed()
        if call is None:
            break
        if error is None:
            assert whole(directory) == 2
            seen["harmless"] += 1
        elif "the save is committed" in str(error):
            assert whole(directory) == 2
            seen["committed"] += 1
        else:
            assert isinstance(error, TransportError), repr(error)
            assert error.errno == number, (call, error)
            assert contents(directory) == before, (call, at)
            seen["refused"] += 1
        save(directory, 3, {**side, "durable": False})
        assert whole(directory) == 3
        now = contents(directory)
        assert {name: now[name] for name in bystanders} == bystanders
        assert now.keys() == bystanders.keys() | files
        shutil.rmtree(directory)
    assert seen["refused"] >= 20, seen
    assert seen["committed"] >= 2, seen


def test_a_missing_parent_is_an_error_and_nothing_is_made(tmp_path: Path) -> None:
    with pytest.raises(SourceMissingError, match="Create its parent first") as caught:
        save(tmp_path / "missing" / "ckpt", 1, THREE)

    assert str(tmp_path / "missing" / "ckpt") in str(caught.value)
    assert os.listdir(tmp_path) == []


def test_a_missing_directory_is_made_and_goes_again_if_nothing_comes_of_it(tmp_path: Path) -> None:
    class MadeUpError(Exception):
        pass

    def give_up(done: int, of: int) -> None:
        raise MadeUpError

    with pytest.raises(MadeUpError):
        save(tmp_path / "ckpt", 1, {**THREE, "progress": give_up})
    assert os.listdir(tmp_path) == []
    save(tmp_path / "ckpt", 1, THREE)
    assert whole(tmp_path / "ckpt") == 1


@pytest.mark.parametrize("directory", ["a file", "a file/below", "a dangling link"])
def test_a_path_that_is_no_directory_is_an_error(tmp_path: Path, directory: str) -> None:
    (tmp_path / "a file").write_bytes(b"mine")
    (tmp_path / "a dangling link").symlink_to("nowhere")
    with pytest.raises(TransportError) as caught:
        save(tmp_path / directory, 1, THREE)

    assert directory in str(caught.value)
    assert sorted(os.listdir(tmp_path)) == ["a dangling link", "a file"]
    assert (tmp_path / "a file").read_bytes() == b"mine"


@pytest.mark.parametrize("name", ["model-00002-of-00003.safetensors", "model.safetensors.index.json"])
def test_a_directory_in_the_place_of_a_file_is_an_error_and_stays(tmp_path: Path, name: str) -> None:
    (tmp_path / name).mkdir()
    (tmp_path / name / "mine").write_bytes(b"mine")
    with pytest.raises(TransportError, match="a directory") as caught:
        save(tmp_path, 1, THREE)

    assert name in str(caught.value)
    assert os.listdir(tmp_path) == [name]
    assert (tmp_path / name / "mine").read_bytes() == b"mine"


AS_NOBODY = """
import os, sys
from tests.support.checkpoint.numbered_saves import FIVE, THREE, save, whole
from tensorkeep.errors import AccessDeniedError
save(sys.argv[1] + "/warm", 0, THREE)
assert whole(sys.argv[1] + "/warm") == 0
if os.geteuid() == 0:
    os.setgroups([]); os.setgid(65534); os.setuid(65534)
for side in (THREE, FIVE):
    try:
        save(sys.argv[1] + "/ckpt", 2, side)
    except AccessDeniedError as error:
        print(error.errno, error.path == sys.argv[1] + "/ckpt", whole(sys.argv[1] + "/ckpt"))
"""


def test_a_directory_that_cannot_be_written_is_an_error() -> None:
    with tempfile.TemporaryDirectory() as folder:  # pytest's own are closed to others
        ckpt = Path(folder, "ckpt")
        save(ckpt, 1, THREE)
        before = contents(ckpt)
        ckpt.chmod(0o555)
        Path(folder).chmod(0o755)
        done = subprocess.run(
            [sys.executable, "-c", AS_NOBODY, folder],
            capture_output=True,
            text=True,
            check=False,
        )

        assert done.stdout.splitlines() == [f"{errno.EACCES} True 1"] * 2, done.stderr
        assert contents(ckpt) == before


READ_ONLY = """
import subprocess, sys
from tests.support.checkpoint.numbered_saves import FIVE, save, whole
from tensorkeep.errors import TransportError
subprocess.run(["mount", "--bind", sys.argv[1], sys.argv[1]], check=True)
subprocess.run(["mount", "-o", "remount,bind,ro", sys.argv[1]], check=True)
try:
    save(sys.argv[1], 2, FIVE)
except TransportError as error:
    print(error.errno, error.path == sys.argv[1], whole(sys.argv[1]))
"""


def test_a_file_system_that_is_read_only_is_an_error(tmp_path: Path) -> None:
    directory = tmp_path / "ckpt"
    save(directory, 1, THREE)
    if shutil.which("unshare") is None:
        pytest.skip("no unshare(1) to mount with")
    done = subprocess.run(
        ["unshare", "--mount", "--map-root-user", sys.executable, "-c", READ_ONLY, str(directory)],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode and "Traceback" not in done.stderr:
        pytest.skip(f"no rights to mount: {done.stderr}")

    assert done.stdout.splitlines() == [f"{errno.EROFS} True 1"], done.stderr


def test_without_reservations_or_gathered_writes_the_checkpoint_is_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(tmp_path / "native", 1, FIVE)
    for flag in ("HAS_POSITIONED_IO", "HAS_GATHERED_WRITES", "HAS_FALLOCATE", "HAS_COPY_FILE_RANGE", "HAS_SENDFILE"):
        monkeypatch.setattr(_platform, flag, False)
    save(tmp_path / "portable", 1, FIVE)
    tensorkeep.save_checkpoint(tensorkeep.open(tmp_path / "portable"), tmp_path / "copied", **FIVE)

    assert contents(tmp_path / "native") == contents(tmp_path / "portable") == contents(tmp_path / "copied")

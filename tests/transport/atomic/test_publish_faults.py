"""When the system fails in the middle of a save, everything is as it was before, and the error says what failed."""

from __future__ import annotations

import errno
import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tensorkeep.errors import AccessDeniedError, TransportError
from tensorkeep.transport import publish
from tensorkeep.transport.system import _platform
from tests.support.transport.publishing import NEW, OLD, names, save


class MadeUpError(Exception):
    pass


@pytest.mark.parametrize("error", [MadeUpError, KeyboardInterrupt, MemoryError, GeneratorExit])
def test_an_error_in_the_block_leaves_everything_as_it_was(
    either: Path, unchanged: Callable[[], bool], error: type[BaseException]
) -> None:
    def save_and_fail() -> None:
        with publish(either) as sink:
            sink.write([NEW])
            raise error

    with pytest.raises(error):
        save_and_fail()

    assert unchanged()


def test_an_error_while_buffers_are_made_leaves_everything_as_it_was(
    either: Path, unchanged: Callable[[], bool]
) -> None:
    def buffers() -> Iterator[bytes]:
        yield NEW * 1_000_000
        raise MadeUpError

    with pytest.raises(MadeUpError), publish(either) as sink:
        sink.write(buffers())

    assert unchanged()


@pytest.mark.parametrize("call", ["fsync", "replace", "fstat", "writev", "open"])
@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC, errno.EPERM])
def test_a_failing_call_leaves_everything_as_it_was(
    either: Path, unchanged: Callable[[], bool], call: str, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as failing:
        failing.setattr(os, call, fail)
        with pytest.raises(TransportError, match="could not write the file") as caught:
            save(either, durable=True)

    assert caught.value.errno == number
    assert isinstance(caught.value, PermissionError) == (number == errno.EPERM)
    assert unchanged()


def test_a_mode_that_cannot_be_kept_leaves_everything_as_it_was(
    target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(os, "fchmod", fail)
    with pytest.raises(AccessDeniedError):
        save(target)

    assert target.read_bytes() == OLD
    assert names(target.parent) == ["model"]


def test_a_directory_that_cannot_be_synced_is_an_error_and_the_file_is_whole(
    target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.fsync

    def fail(fd: int) -> None:
        if stat.S_ISDIR(os.fstat(fd).st_mode):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        real(fd)

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(TransportError):
        save(target, durable=True)

    assert target.read_bytes() in {OLD, NEW}
    assert names(target.parent) == ["model"]


def test_the_bytes_are_synced_before_the_name_and_the_name_before_the_end(
    target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events: list[str] = []
    fsync, replace = os.fsync, os.replace

    def seen_fsync(fd: int) -> None:
        events.append("sync " + os.readlink(f"/proc/self/fd/{fd}").replace(str(target.parent), "."))
        fsync(fd)

    def seen_replace(source: str, to: str) -> None:
        events.append("rename")
        replace(source, to)

    monkeypatch.setattr(os, "fsync", seen_fsync)
    monkeypatch.setattr(os, "replace", seen_replace)
    save(target, durable=True)

    assert len(events) == 3
    assert events[0].startswith("sync ./.model.")
    assert events[1:] == ["rename", "sync ."]
    events.clear()
    save(target, durable=False)
    assert events == ["rename"]


@pytest.mark.parametrize("number", [errno.EOPNOTSUPP, errno.ENOSYS])
def test_without_rename_the_file_is_copied(either: Path, number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    if either.exists():
        either.chmod(0o640)
    monkeypatch.setattr(os, "replace", refuse)
    save(either)

    assert either.read_bytes() == NEW
    assert names(either.parent) == ["model"]


def test_a_copy_that_fails_keeps_the_staged_file_and_names_it(target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.EOPNOTSUPP, "Operation not supported")

    def fail(*_: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "replace", refuse)
    monkeypatch.setattr(shutil, "copyfile", fail)
    with pytest.raises(TransportError, match="cannot rename") as caught:
        save(target)

    (staged,) = set(names(target.parent)) - {"model"}
    assert str(target.parent / staged) in str(caught.value)
    assert (target.parent / staged).read_bytes() == NEW
    assert target.read_bytes() == OLD


@pytest.mark.parametrize(
    "flags", [("HAS_GATHERED_WRITES",), ("HAS_FALLOCATE",), ("HAS_GATHERED_WRITES", "HAS_FALLOCATE")]
)
def test_portable_fallbacks_give_the_same_file(
    either: Path, flags: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    for flag in flags:
        monkeypatch.setattr(_platform, flag, False)
    save(either, durable=True)

    assert either.read_bytes() == NEW
    assert names(either.parent) == ["model"]


AS_NOBODY = """
import os, sys
from tensorkeep.errors import AccessDeniedError
from tensorkeep.transport import LocalFile, publish
with publish(sys.argv[1] + "/warm", durable=True) as sink: sink.write([b"x"])
os.unlink(sys.argv[1] + "/warm")
if os.geteuid() == 0:
    os.setgroups([]); os.setgid(65534); os.setuid(65534)
for act in (lambda: publish(sys.argv[1] + "/model").__enter__(), lambda: LocalFile(sys.argv[1] + "/secret")):
    try:
        act()
    except AccessDeniedError as error:
        print(type(error).__name__, isinstance(error, PermissionError), error.errno)
"""


def test_without_rights_nothing_is_written_and_the_error_says_so(reachable: Path) -> None:
    folder = reachable / "read only"
    folder.mkdir(mode=0o755)
    (folder / "model").write_bytes(OLD)
    (folder / "secret").write_bytes(OLD)
    (folder / "secret").chmod(0)
    done = subprocess.run([sys.executable, "-c", AS_NOBODY, str(folder)], capture_output=True, text=True, check=False)

    assert done.stdout.splitlines() == ["AccessDeniedError True 13"] * 2, done.stderr
    assert names(folder) == ["model", "secret"]
    assert (folder / "model").read_bytes() == OLD
    assert issubclass(AccessDeniedError, PermissionError)

"""When the system fails in the middle of a save of a set, nobody finds a mixture, and one error says what failed."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tensorkeep.errors import BusyError, IntegrityError, TensorkeepError, TransportError, UnsupportedError
from tensorkeep.transport import PendingCommit, finish_pending_commit, transaction
from tensorkeep.transport.atomic._staging import Staging
from tests.support.transport.publishing import NEW, OLD, names
from tests.support.transport.sets import CASES, STAGING, Case, files_in, lay_out, locked, read, replace

CALLS = (
    *("open", "write", "writev", "pwrite", "fsync", "replace", "unlink", "mkdir", "rmdir", "listdir", "scandir"),
    *("lstat", "fstat", "stat", "ftruncate", "fchmod", "chmod"),
)


class FailingSystem:
    """The system's calls, of which one fails: that of a number."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, number: int, error: int) -> None:
        self.failed = ""
        self._left = number
        self._error = error
        monkeypatch.setattr(os, "fsync", lambda fd: None)
        for name in CALLS:
            monkeypatch.setattr(os, name, self._counted(name, getattr(os, name)))

    def _counted(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*arguments: Any, **keywords: Any) -> Any:
            self._left -= 1
            if self._left == 0:
                self.failed = f"{name}{arguments}"
                raise OSError(self._error, os.strerror(self._error))
            return call(*arguments, **keywords)

        return counted


@pytest.mark.parametrize("case", [case for case in CASES if case != "fewer of the same"])
@pytest.mark.parametrize("number", [errno.EIO, errno.EXDEV])
def test_a_failure_of_any_call_leaves_the_old_set_or_a_committed_new_one(
    tmp_path: Path, case: str, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = CASES[case].old, CASES[case].new
    outcomes = {"old": 0, "committed": 0, "unnoticed": 0}
    for place in range(1, 500):
        lay_out(tmp_path, old)
        caught: BaseException | None = None
        with monkeypatch.context() as failing:
            system = FailingSystem(failing, place, number)
            try:
                replace(tmp_path, CASES[case])
            except TensorkeepError as error:
                caught = error
        if not system.failed:
            break
        if caught is None:  # it did not matter: a mode that is a courtesy, or what the next save cleans up
            outcomes["unnoticed"] += 1
            assert read(tmp_path, CASES[case]) == new, system.failed
        elif "committed" in str(caught):
            outcomes["committed"] += 1
            assert read(tmp_path, CASES[case]) == new, system.failed
        else:
            outcomes["old"] += 1
            assert isinstance(caught, TransportError)
            assert caught.errno == number, system.failed
            assert files_in(tmp_path) == read(tmp_path, CASES[case]) == old, system.failed
        lay_out_again = files_in(tmp_path)
        with transaction(tmp_path, "model"):
            pass
        assert files_in(tmp_path) == lay_out_again
        assert STAGING not in names(tmp_path), system.failed

    assert not system.failed
    assert outcomes["old"] >= 15
    assert outcomes["committed"] >= 1


@pytest.mark.parametrize("case", ["same names", "edited in place", "several to one"])
def test_a_reader_that_cannot_finish_a_save_reads_past_it(
    tmp_path: Path, case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    n_read_past = 0
    for place in range(1, 200):
        lay_out(tmp_path, CASES[case].old)
        with monkeypatch.context() as dying:
            dying.setattr(Staging, "replay", lambda *_, **__: None)
            replace(tmp_path, CASES[case], durable=False)
        pending: PendingCommit | None = None
        caught = None
        with monkeypatch.context() as failing:
            system = FailingSystem(failing, place, errno.EROFS)
            try:
                pending = finish_pending_commit(tmp_path, "model")
            except TransportError as error:
                caught = error
        if not system.failed:
            break
        n_read_past += pending is not None
        assert caught is None or "journal" in str(caught)
        with locked(tmp_path):
            assert read(tmp_path, CASES[case]) == CASES[case].new, system.failed

    assert not system.failed
    assert n_read_past >= 5


def test_what_a_commit_needs_is_durable_before_it_and_its_steps_before_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = Case({"a": OLD, "index": OLD}, {"a": NEW * 200, "b": NEW, "index": NEW}, ("index",), "index", ("a",))
    lay_out(tmp_path, {**case.old, "a": OLD * 400, "c": OLD})
    events: list[str] = []

    def shown(path: str) -> str:
        return path.replace(str(tmp_path), ".").replace(STAGING, "~")

    def fsync(fd: int) -> None:
        events.append(f"sync {shown(os.readlink(f'/proc/self/fd/{fd}'))}")

    def seen(name: str, call: Callable[..., None]) -> Callable[..., None]:
        def act(*paths: str) -> None:
            call(*paths)
            events.append(" ".join([name, *map(shown, paths)]))

        return act

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(os, "replace", seen("rename", os.replace))
    monkeypatch.setattr(os, "unlink", seen("unlink", os.unlink))
    with transaction(tmp_path, "model") as saving:
        saving.patch("a", b"edited")
        for name in ("b", "index"):
            with saving.file(name) as sink:
                sink.write([NEW])
        saving.commit(first=["index"], last="index", remove=["c", "index"])

    assert [event for event in events if "lock" not in event] == [
        *("sync ./~/a.head", "sync ./~/b", "sync ./~/index", "sync ./~", "sync ."),
        *("sync ./~/commit.json.draft", "rename ./~/commit.json.draft ./~/commit.json", "sync ./~"),
        *("unlink ./index", "sync ./a", "rename ./~/b ./b", "rename ./~/index ./index", "sync ."),
        *("unlink ./c", "sync .", "unlink ./~/commit.json", "unlink ./~/a.head"),
    ]
    events.clear()
    with transaction(tmp_path, "model", durable=False) as saving:
        with saving.file("b") as sink:
            sink.write([NEW])
        saving.commit(remove=["a"])
    assert not [event for event in events if "sync" in event]


def test_a_single_file_is_renamed_and_needs_no_journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "model").write_bytes(OLD)
    real, renamed = os.replace, []

    def seen(source: str, to: str) -> None:
        renamed.append(to)
        real(source, to)

    monkeypatch.setattr(os, "replace", seen)
    with transaction(tmp_path, "model") as saving:
        with saving.file("model") as sink:
            sink.write([NEW])
        saving.commit(first=["model"], last="model", remove=["model", "not there"])

    assert renamed == [str(tmp_path / "model")]


def test_a_damaged_journal_is_an_error_and_nothing_is_touched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = CASES["same names"]
    lay_out(tmp_path, case.old)
    with monkeypatch.context() as dying:
        dying.setattr(Staging, "replay", lambda *_, **__: None)
        replace(tmp_path, case)
    journal = tmp_path / STAGING / "commit.json"
    whole = journal.read_bytes()
    staged = names(tmp_path / STAGING)
    for text in (b"", whole[:-1], whole.replace(b"m-1", b"m-9"), b"\xff", b"{}", b"[" * 100_000, b"null"):
        journal.write_bytes(text)
        for act in (
            lambda: finish_pending_commit(tmp_path, "model"),
            lambda: transaction(tmp_path, "model").__enter__(),
        ):
            with pytest.raises(IntegrityError) as caught:
                act()
            assert str(journal) in str(caught.value)
        assert files_in(tmp_path) == case.old
        assert names(tmp_path / STAGING) == staged
    journal.unlink()
    journal.mkdir()
    with pytest.raises(IntegrityError):
        finish_pending_commit(tmp_path, "model")
    journal.rmdir()
    journal.symlink_to(tmp_path / "m-1")
    with pytest.raises(TransportError):
        finish_pending_commit(tmp_path, "model")
    journal.unlink()

    journal.write_bytes(whole.replace(b'"version":1', b'"version":2'))
    with pytest.raises(UnsupportedError, match="later version"):
        finish_pending_commit(tmp_path, "model")
    journal.write_bytes(whole)
    assert read(tmp_path, case) == case.new


ON_A_SMALL_DISK = """
import os, sys
from tests.support.transport.sets import CASES, STAGING, files_in, lay_out, replace
from tensorkeep.errors import TransportError
from tensorkeep.transport import transaction
folder = sys.argv[1]
case = CASES[sys.argv[2]]
lay_out(folder, case.old)
for limit in range(1, 100):
    ballast = os.path.join(folder, "ballast")
    hard = os.statvfs(folder)
    room = limit if sys.argv[3] == "inodes" else limit * 4096
    if sys.argv[3] == "inodes":
        for n in range(max(0, hard.f_ffree - room)): os.close(os.open(f"{ballast}{n}", os.O_CREAT))
    else:
        with open(ballast, "wb") as file: file.write(bytes(max(0, hard.f_bfree * hard.f_bsize - room)))
    try:
        replace(folder, case)
        print("done", limit)
        break
    except TransportError as error:
        assert error.errno == 28, error
    for name in os.listdir(folder):
        if name.startswith("ballast"): os.unlink(os.path.join(folder, name))
    assert files_in(folder) == case.old, sorted(files_in(folder))
    assert STAGING not in os.listdir(folder), os.listdir(folder)
for name in os.listdir(folder):
    if name.startswith("ballast"): os.unlink(os.path.join(folder, name))
assert files_in(folder) == case.new
"""


@pytest.mark.parametrize("case", ["same names", "other names", "edited in place"])
@pytest.mark.parametrize("what", ["blocks", "inodes"])
def test_a_disk_that_is_full_at_any_file_leaves_the_old_set(tmp_path: Path, case: str, what: str) -> None:
    script = tmp_path / "on_a_small_disk.py"
    script.write_text(ON_A_SMALL_DISK)
    disk = tmp_path / "disk"
    disk.mkdir()
    arguments = f"{disk} '{case}' {what}"
    mounted = (
        f"mount -t tmpfs -o size=1m,nr_inodes=40 tmpfs {disk} || exit 77; exec {sys.executable} {script} {arguments}"
    )
    if shutil.which("unshare") is None:
        pytest.skip("no unshare(1) to mount a small disk with")
    done = subprocess.run(
        ["unshare", "--mount", "--map-root-user", "sh", "-c", mounted], capture_output=True, text=True, check=False
    )
    if done.returncode in {1, 77} and "Traceback" not in done.stderr:
        pytest.skip(f"no rights to mount a small disk: {done.stderr}")

    assert done.returncode == 0, done.stderr
    word, limit = done.stdout.split()
    assert word == "done"
    assert int(limit) >= 4, "the disk was never full"


AS_NOBODY = """
import os, sys
from tests.support.transport.sets import CASES, files_in, read
from tensorkeep.transport import transaction
os.chdir(sys.argv[1])  # while the way there is open
folder, case = ".", CASES[sys.argv[2]]
if os.geteuid() == 0:
    os.setgroups([]); os.setgid(65534); os.setuid(65534)
print(read(folder, case) == case.new, files_in(folder) == case.old)
try:
    transaction(folder, "model").__enter__()
except PermissionError as error:
    print(type(error).__name__)
"""


@pytest.mark.parametrize("case", ["same names", "edited in place", "one to several", "several to one"])
def test_who_may_only_read_sees_the_new_set_and_changes_nothing(
    tmp_path: Path, case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "read only"
    folder.mkdir(0o755)
    lay_out(folder, CASES[case].old)
    with monkeypatch.context() as dying:
        dying.setattr(Staging, "replay", lambda *_, **__: None)
        replace(folder, CASES[case])
    folder.chmod(0o555)
    (folder / STAGING).chmod(0o555)
    program = [sys.executable, "-c", AS_NOBODY, str(folder), case]
    done = subprocess.run(program, capture_output=True, text=True, check=False)

    assert done.stdout.split() == ["True", "True", "AccessDeniedError"], done.stderr
    for path in (folder, folder / STAGING):
        path.chmod(0o755)
    assert read(folder, CASES[case]) == CASES[case].new


HOLDER = """
import sys, time
from tests.support.transport.sets import CASES, lay_out, replace
from tensorkeep.transport.atomic._staging import Staging
def wait(*_, **__):
    print("committed", flush=True)
    time.sleep(60)
Staging.replay = wait
replace(sys.argv[1], CASES["same names"])
"""


def test_while_the_writer_lives_readers_read_past_it_and_writers_wait(tmp_path: Path) -> None:
    case = CASES["same names"]
    lay_out(tmp_path, case.old)
    program = [sys.executable, "-c", HOLDER, str(tmp_path)]
    with subprocess.Popen(program, stdout=subprocess.PIPE, text=True) as writer:
        try:
            assert writer.stdout is not None
            assert writer.stdout.readline() == "committed\n"
            assert isinstance(finish_pending_commit(tmp_path, "model"), PendingCommit)
            assert read(tmp_path, case) == case.new
            assert files_in(tmp_path) == case.old
            with pytest.raises(BusyError, match=rf"process {writer.pid} .* on {os.uname().nodename}"):
                transaction(tmp_path, "model").__enter__()
        finally:
            writer.kill()

    assert finish_pending_commit(tmp_path, "model") is None
    assert files_in(tmp_path) == case.new
    assert STAGING not in names(tmp_path)

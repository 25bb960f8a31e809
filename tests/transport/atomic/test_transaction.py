"""A transaction changes a set of files at once or not at all, under the names and with the modes they should have."""

from __future__ import annotations

import os
import shutil
import stat
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tensorkeep.errors import SourceMissingError, TransportError, UnsupportedError
from tensorkeep.transport import finish_pending_commit, transaction
from tensorkeep.transport.atomic._staging import Staging
from tests.support.transport.publishing import NEW, OLD, names
from tests.support.transport.sets import CASES, STAGING, files_in, lay_out, locked, read, replace


class MadeUpError(Exception):
    pass


def refuse(nbytes: int) -> None:
    raise MadeUpError


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


@pytest.fixture
def umask() -> Iterator[None]:
    before = os.umask(0o027)
    yield
    os.umask(before)


@pytest.fixture
def committed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder in which a save was committed, and died before anything was moved."""
    case = CASES["same names"]
    lay_out(tmp_path, case.old)
    with monkeypatch.context() as dying:
        dying.setattr(Staging, "replay", lambda *_, **__: None)
        replace(tmp_path, case)
    return tmp_path


@pytest.mark.parametrize("durable", [True, False])
@pytest.mark.parametrize("name", CASES)
def test_a_commit_replaces_the_old_set_by_the_new_one(tmp_path: Path, name: str, durable: bool) -> None:
    case = CASES[name]
    lay_out(tmp_path, case.old)
    with transaction(tmp_path, "model", durable=durable):
        assert files_in(tmp_path) == case.old
    replace(tmp_path, case, durable=durable)

    assert files_in(tmp_path) == case.new
    assert STAGING not in names(tmp_path)
    assert finish_pending_commit(tmp_path, "model") is None


@pytest.mark.parametrize("error", [MadeUpError, KeyboardInterrupt, MemoryError, GeneratorExit])
@pytest.mark.parametrize("inside", ["file", "transaction"])
def test_an_error_in_the_block_leaves_everything_as_it_was(
    tmp_path: Path, error: type[BaseException], inside: str
) -> None:
    (tmp_path / "m-1").write_bytes(OLD)

    def save_and_fail() -> None:
        with transaction(tmp_path, "model") as saving:
            saving.patch("m-1", b"edited")
            with saving.file("m-2") as sink:
                sink.write([NEW])
                if inside == "file":
                    raise error
            raise error

    with pytest.raises(error):
        save_and_fail()

    assert names(tmp_path) == ["m-1"]
    assert (tmp_path / "m-1").read_bytes() == OLD


def test_a_file_that_failed_is_dropped_and_can_be_written_again(tmp_path: Path) -> None:
    with transaction(tmp_path, "model") as saving:
        with saving.file("kept") as sink:
            sink.write([NEW])
        for _ in range(2):
            with pytest.raises(MadeUpError), saving.file("again", on_written=refuse) as sink:
                sink.write([OLD])
            assert not os.path.exists(saving.path_of("again"))
        with saving.file("again") as sink:
            sink.write([NEW])
        with pytest.raises(MadeUpError), saving.file("dropped", on_written=refuse) as sink:
            sink.write([OLD])
        saving.commit()

    assert files_in(tmp_path) == {"kept": NEW, "again": NEW}
    assert names(tmp_path) == ["again", "kept"]


def test_files_wait_under_their_names_until_the_commit(tmp_path: Path) -> None:
    with transaction(tmp_path, "model") as saving:
        with saving.file("m-1") as sink:
            sink.write([NEW])
        assert Path(saving.path_of("m-1")).read_bytes() == NEW
        assert files_in(tmp_path) == {}
        saving.commit()
        assert files_in(tmp_path) == {"m-1": NEW}


def test_several_threads_write_a_thousand_files_with_few_descriptors(tmp_path: Path) -> None:
    wanted = {f"m-{number:04d}": os.urandom(50) for number in range(1_000)}
    n_open: list[int] = []

    with transaction(tmp_path, "model", durable=False) as saving:

        def write(name: str) -> None:
            with saving.file(name) as sink:
                sink.write([wanted[name]])
                n_open.append(len(os.listdir("/proc/self/fd")))

        before = len(os.listdir("/proc/self/fd"))
        with ThreadPoolExecutor(8) as threads:
            list(threads.map(write, wanted))
        saving.commit(last="m-0500")

    assert files_in(tmp_path) == wanted
    assert max(n_open) <= before + 8 + 8  # what listing opens, too


def test_progress_is_told_per_file_and_may_break_off(tmp_path: Path) -> None:
    told: list[int] = []
    with transaction(tmp_path, "model") as saving:
        with saving.file("m-1", on_written=told.append) as sink:
            sink.write([NEW])
            sink.write([OLD])

        with pytest.raises(MadeUpError), saving.file("m-2", on_written=refuse) as sink:
            sink.write([NEW])
        saving.commit()

    assert told == [len(NEW), len(NEW) + len(OLD)]
    assert names(tmp_path) == ["m-1"]


def test_new_files_get_the_umasks_mode_and_replaced_ones_keep_theirs(tmp_path: Path, umask: None) -> None:
    for name, mode in (("shared", 0o666), ("private", 0o600), ("read only", 0o444)):
        (tmp_path / name).write_bytes(OLD)
        (tmp_path / name).chmod(mode)
    with transaction(tmp_path, "model") as saving:
        for name in ("shared", "private", "read only", "new"):
            with saving.file(name) as sink:
                sink.write([NEW])
                if name != "new":
                    assert mode_of(Path(saving.path_of(name))) == 0o600
        saving.commit()

    modes = {name: mode_of(tmp_path / name) for name in names(tmp_path)}
    assert modes == {"shared": 0o666, "private": 0o600, "read only": 0o444, "new": 0o640}


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root gives files away")
def test_a_replaced_file_keeps_its_owner(tmp_path: Path) -> None:
    for name in ("m-1", "m-2"):
        (tmp_path / name).write_bytes(OLD)
        os.chown(tmp_path / name, 1234, 2345)
    with transaction(tmp_path, "model") as saving:
        for name in ("m-1", "m-2"):
            with saving.file(name) as sink:
                sink.write([NEW])
        saving.commit()

    assert {((tmp_path / name).stat().st_uid, (tmp_path / name).stat().st_gid) for name in names(tmp_path)} == {
        (1234, 2345)
    }


def test_a_link_is_replaced_and_what_it_leads_to_stays(tmp_path: Path) -> None:
    (tmp_path / "blobs").mkdir()
    (tmp_path / "snapshot").mkdir()
    for name in ("m-1", "m-2"):
        (tmp_path / "blobs" / name).write_bytes(OLD)
        (tmp_path / "blobs" / name).chmod(0o444)
        (tmp_path / "snapshot" / name).symlink_to(f"../blobs/{name}")
    (tmp_path / "snapshot" / "dangling").symlink_to("nowhere")
    (tmp_path / "link").symlink_to("snapshot")
    with transaction(tmp_path / "link", "model") as saving:
        for name in ("m-1", "dangling"):
            with saving.file(name) as sink:
                sink.write([NEW])
        saving.commit(remove=["m-2"])

    assert files_in(tmp_path / "snapshot") == {"m-1": NEW, "dangling": NEW}
    assert not (tmp_path / "snapshot" / "m-1").is_symlink()
    assert mode_of(tmp_path / "snapshot" / "m-1") != 0o444
    assert files_in(tmp_path / "blobs") == {"m-1": OLD, "m-2": OLD}
    assert (tmp_path / "link").is_symlink()


@pytest.mark.parametrize("kind", ["symbolic link", "hard link", "missing", "directory", "too short"])
def test_only_a_file_of_its_own_is_edited_in_place(tmp_path: Path, kind: str) -> None:
    (tmp_path / "blob").write_bytes(OLD)
    target = tmp_path / "m-1"
    if kind == "symbolic link":
        target.symlink_to("blob")
    elif kind == "hard link":
        os.link(tmp_path / "blob", target)
    elif kind == "directory":
        target.mkdir()
    elif kind == "too short":
        target.write_bytes(b"ab")
    before = names(tmp_path)
    expected = {"missing": SourceMissingError, "too short": TransportError}.get(kind, UnsupportedError)
    with transaction(tmp_path, "model") as saving, pytest.raises(expected):
        saving.patch("m-1", b"edit")

    assert names(tmp_path) == before
    assert (tmp_path / "blob").read_bytes() == OLD


def test_an_edited_file_is_the_same_file(tmp_path: Path) -> None:
    (tmp_path / "m-1").write_bytes(OLD)
    inode = (tmp_path / "m-1").stat().st_ino
    with transaction(tmp_path, "model") as saving:
        saving.patch("m-1", b"NEW")
        assert (tmp_path / "m-1").read_bytes() == OLD
        saving.commit()

    assert (tmp_path / "m-1").read_bytes() == b"NEW" + OLD[3:]
    assert (tmp_path / "m-1").stat().st_ino == inode
    assert names(tmp_path) == ["m-1"]


@pytest.mark.parametrize(
    "name", ["", ".", "..", "a/b", "/a", "a\\b", "C:a", "a\0b", "\udcff", "lock", "commit.json", "m.head"]
)
def test_names_that_are_not_plain_or_not_free_are_refused(tmp_path: Path, name: str) -> None:
    with transaction(tmp_path, "model") as saving, pytest.raises(UnsupportedError), saving.file(name):
        pass

    assert names(tmp_path) == []


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "/a", "a\\b", "C:a", "a\0b", "\udcff"])
def test_names_that_are_not_plain_are_never_removed(tmp_path: Path, name: str) -> None:
    with pytest.raises(UnsupportedError), transaction(tmp_path, name):
        pass
    with transaction(tmp_path, "model") as saving:
        with saving.file("m-1") as sink:
            sink.write([NEW])
        for removed in ({"first": [name]}, {"remove": [name]}):
            with pytest.raises(UnsupportedError):
                saving.commit(**removed)
        saving.commit()

    assert names(tmp_path) == ["m-1"]


def test_directories_are_neither_replaced_nor_removed(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    with transaction(tmp_path, "model") as saving:
        with pytest.raises(TransportError, match="only files"), saving.file("folder"):
            pass
        for removed in ({"first": ["folder"]}, {"remove": ["folder"]}):
            with pytest.raises(TransportError, match="only files"):
                saving.commit(**removed)

    assert names(tmp_path) == ["folder"]


def test_a_name_is_new_or_edited_and_written_once(tmp_path: Path) -> None:
    (tmp_path / "m-1").write_bytes(OLD)
    with transaction(tmp_path, "model") as saving:
        saving.patch("m-1", b"new")
        for misuse in (lambda: saving.file("m-1").__enter__(), lambda: saving.patch("m-1", b"two")):
            with pytest.raises(UnsupportedError):
                misuse()
        with pytest.raises(UnsupportedError):
            saving.commit(remove=["m-1"])
        with saving.file("m-2"):
            pass
        with pytest.raises(TransportError), saving.file("m-2"):
            pass
        with pytest.raises(UnsupportedError):
            saving.patch("m-2", b"")
        with pytest.raises(TransportError, match="last"):
            saving.commit(last="m-3")
        saving.commit(last="m-2")
        with pytest.raises(TransportError, match="already committed"):
            saving.commit()

    assert names(tmp_path) == ["m-1", "m-2"]
    assert (tmp_path / "m-1").read_bytes() == b"new" + OLD[3:]


def test_a_missing_directory_is_named_and_a_file_is_none(tmp_path: Path) -> None:
    with pytest.raises(SourceMissingError, match=r"No such file or directory.*Create the directory") as caught:
        transaction(tmp_path / "missing", "model").__enter__()
    assert str(tmp_path / "missing") in str(caught.value)

    (tmp_path / "file").write_bytes(OLD)
    with pytest.raises(TransportError, match="Not a directory"):
        transaction(tmp_path / "file", "model").__enter__()
    assert (
        finish_pending_commit(tmp_path / "missing", "model")
        is finish_pending_commit(tmp_path / "file", "model")
        is None
    )
    assert names(tmp_path) == ["file"]


def test_a_relative_directory_is_where_it_was_at_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "ckpt").mkdir()
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    with transaction("ckpt", "model") as saving:
        monkeypatch.chdir("elsewhere")
        with saving.file("m-1") as sink:
            sink.write([NEW])
        saving.commit()

    assert files_in(tmp_path / "ckpt") == {"m-1": NEW}


def test_sets_of_one_directory_do_not_know_of_each_other(tmp_path: Path) -> None:
    with transaction(tmp_path, "model") as one, transaction(tmp_path, "model.fp16") as other:
        for saving, name in ((one, "m"), (other, "m.fp16")):
            with saving.file(name) as sink:
                sink.write([name.encode()])
        other.commit()
        one.commit()

    assert files_in(tmp_path) == {"m": b"m", "m.fp16": b"m.fp16"}
    assert names(tmp_path) == ["m", "m.fp16"]


def test_leftovers_of_dead_saves_go(tmp_path: Path) -> None:
    leftover = ".model.01234567-0123456789abcdef.tensorkeep-staged"
    (tmp_path / leftover).write_bytes(OLD)
    (tmp_path / STAGING).mkdir()
    for name in ("lock", "m-1", "m-9", "m-1.head", "commit.json.draft"):
        (tmp_path / STAGING / name).write_bytes(OLD)
    with transaction(tmp_path, "model") as saving:
        assert names(tmp_path / STAGING) == ["lock"]
        with saving.file("m-1") as sink:
            sink.write([NEW])
        saving.commit()

    assert names(tmp_path) == ["m-1"]


def test_readers_leave_what_is_not_committed_alone(tmp_path: Path) -> None:
    with transaction(tmp_path, "model") as saving:
        with saving.file("m-1") as sink:
            sink.write([NEW])
        before = names(tmp_path / STAGING)
        assert finish_pending_commit(tmp_path, "model") is None
        assert names(tmp_path / STAGING) == before


def test_the_next_reader_finishes_a_committed_save(committed: Path) -> None:
    assert files_in(committed) == CASES["same names"].old
    assert finish_pending_commit(committed, "model") is None

    assert files_in(committed) == CASES["same names"].new
    assert STAGING not in names(committed)


def test_the_next_writer_finishes_a_committed_save(committed: Path) -> None:
    with transaction(committed, "model"):
        assert files_in(committed) == CASES["same names"].new
    assert STAGING not in names(committed)


def test_a_copy_of_the_directory_is_only_read_past(committed: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    copied = tmp_path_factory.mktemp("copies") / "copy"
    shutil.copytree(committed, copied)
    before = names(copied / STAGING)
    case = CASES["same names"]

    assert read(copied, case) == case.new
    assert files_in(copied) == case.old
    assert names(copied / STAGING) == before
    with transaction(copied, "model"):
        assert files_in(copied) == case.new


def test_a_pending_save_that_is_finished_meanwhile_is_still_read_right(committed: Path) -> None:
    case = CASES["same names"]
    with locked(committed):
        pending = finish_pending_commit(committed, "model")
    assert pending is not None
    assert finish_pending_commit(committed, "model") is None

    assert pending.resolve("m-1") == os.path.join(committed, "m-1")
    with transaction(committed, "model") as saving:  # the next save is none of this one's business
        with saving.file("m-1") as sink:
            sink.write([b"half a file"])
        assert Path(pending.resolve("m-1")).read_bytes() == case.new["m-1"]
        assert pending.resolve("unknown") == os.path.join(committed, "unknown")


def test_an_edit_is_not_made_to_a_file_that_was_replaced_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = CASES["edited in place"]
    lay_out(tmp_path, case.old)
    with monkeypatch.context() as dying:
        dying.setattr(Staging, "replay", lambda *_, **__: None)
        replace(tmp_path, case)
    foreign = bytes(len(case.old["m-1"]))
    (tmp_path / "m-1").write_bytes(foreign)
    (tmp_path / "precious").write_bytes(case.old["m-2"])
    (tmp_path / "m-2").unlink()
    (tmp_path / "m-2").symlink_to("precious")
    with locked(tmp_path):
        pending = finish_pending_commit(tmp_path, "model")
        assert pending is not None
        assert pending.head_of("m-1") is pending.head_of("m-2") is pending.head_of("index") is None
    assert finish_pending_commit(tmp_path, "model") is None

    assert (tmp_path / "m-1").read_bytes() == foreign
    assert (tmp_path / "precious").read_bytes() == case.old["m-2"]
    assert (tmp_path / "index").read_bytes() == case.new["index"]
    assert STAGING not in names(tmp_path)


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root gives files away")
def test_in_a_sticky_directory_nobody_commits_for_others(committed: Path) -> None:
    case = CASES["same names"]
    os.chown(committed / STAGING, 65534, 65534)
    committed.chmod(0o1777)
    assert finish_pending_commit(committed, "model") is None
    with pytest.raises(PermissionError, match="another user"):
        transaction(committed, "model").__enter__()
    assert files_in(committed) == case.old

    os.chown(committed / STAGING, 0, 0)
    assert finish_pending_commit(committed, "model") is None
    assert files_in(committed) == case.new


def test_a_link_in_the_place_of_the_staging_directory_is_not_followed(tmp_path: Path, committed: Path) -> None:
    victim = tmp_path / "victim"
    victim.mkdir()
    (victim / "index").write_bytes(OLD)
    (victim / STAGING).symlink_to(committed / STAGING)

    assert finish_pending_commit(victim, "model") is None
    with pytest.raises(PermissionError):
        transaction(victim, "model").__enter__()
    assert names(victim) == [STAGING, "index"]
    assert (victim / "index").read_bytes() == OLD


def test_a_team_shares_what_it_may_share(tmp_path: Path, umask: None) -> None:
    tmp_path.chmod(0o775)
    (tmp_path / "private").write_bytes(OLD)
    (tmp_path / "private").chmod(0o600)
    with transaction(tmp_path, "model") as saving:
        saving.patch("private", b"new")
        assert mode_of(tmp_path / STAGING) & 0o777 == 0o775
        assert mode_of(tmp_path / STAGING / "private.head") == 0o600
    tmp_path.chmod(0o1777)
    with transaction(tmp_path, "model"):
        assert mode_of(tmp_path / STAGING) & 0o777 == 0o755


def test_one_of_many_threads_saves_and_the_others_hear_that_it_is_busy(tmp_path: Path) -> None:
    barrier = threading.Barrier(4)
    done: list[str] = []

    def save(number: int) -> None:
        barrier.wait()
        try:
            with transaction(tmp_path, "model", durable=False) as saving:
                with saving.file("m-1") as sink:
                    sink.write([str(number).encode()])
                saving.commit()
            done.append("saved")
        except TransportError as error:
            done.append(type(error).__name__)

    for _ in range(30):
        with ThreadPoolExecutor(4) as threads:
            list(threads.map(save, range(4)))
    assert len(done) == 120
    assert set(done) <= {"saved", "BusyError"}
    assert done.count("saved") >= 30
    assert names(tmp_path) == ["m-1"]

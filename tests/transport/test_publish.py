"""A published file appears whole or not at all, with the mode it should have, whatever the system does meanwhile."""

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

from tensorkeep.errors import AccessDeniedError, SourceMissingError, TransportError
from tensorkeep.transport import _mounts, _platform, publish, sweep_leftovers

OLD, NEW = b"old content", b"new content, which is longer"


def save(path: str | os.PathLike[str], content: bytes = NEW, *, durable: bool = False) -> None:
    with publish(path, durable=durable) as sink:
        sink.preallocate(len(content))
        sink.write([content[:4], bytearray(content[4:])])


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def names(folder: Path) -> list[str]:
    return sorted(os.listdir(folder))


@pytest.fixture
def umask() -> Iterator[Callable[[int], None]]:
    before = os.umask(0o022)

    def change(mask: int) -> None:
        os.umask(mask)

    yield change
    os.umask(before)


@pytest.fixture
def target(tmp_path: Path) -> Path:
    target = tmp_path / "model"
    target.write_bytes(OLD)
    return target


@pytest.fixture(params=["new", "replaced"])
def either(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    path = tmp_path / "model"
    if request.param == "replaced":
        path.write_bytes(OLD)
    return path


@pytest.fixture
def unchanged(either: Path) -> Callable[[], bool]:
    def check() -> bool:
        there = [either.name] if either.exists() else []
        return names(either.parent) == there and (not there or either.read_bytes() == OLD)

    assert check()
    return check


@pytest.mark.parametrize("durable", [True, False])
def test_the_file_appears_when_the_block_ends(either: Path, durable: bool) -> None:
    before = either.read_bytes() if either.exists() else None
    with publish(either, durable=durable) as sink:
        sink.preallocate(len(NEW))
        sink.write([NEW])
        assert (either.read_bytes() if either.exists() else None) == before

    assert either.read_bytes() == NEW
    assert names(either.parent) == ["model"]


@pytest.mark.parametrize("mask", [0o002, 0o022, 0o077, 0o000])
def test_a_new_file_gets_the_mode_that_the_umask_gives(
    tmp_path: Path, mask: int, umask: Callable[[int], None]
) -> None:
    umask(mask)
    save(tmp_path / "model")

    assert mode_of(tmp_path / "model") == 0o666 & ~mask


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o644, 0o664, 0o666, 0o755, 0o444, 0o2640])
def test_a_replaced_file_keeps_its_mode(target: Path, mode: int, umask: Callable[[int], None]) -> None:
    umask(0o027)
    target.chmod(mode)
    save(target)

    assert mode_of(target) == mode
    assert target.read_bytes() == NEW


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root gives files away")
def test_a_replaced_file_keeps_its_owner(target: Path) -> None:
    os.chown(target, 1234, 2345)
    target.chmod(0o640)
    save(target)

    assert (target.stat().st_uid, target.stat().st_gid) == (1234, 2345)
    assert mode_of(target) == 0o640


@pytest.mark.parametrize("relative", [True, False])
def test_links_are_followed_and_stay(tmp_path: Path, relative: bool) -> None:
    (tmp_path / "store").mkdir()
    real = tmp_path / "store" / "blob"
    real.write_bytes(OLD)
    (tmp_path / "middle").symlink_to("store/blob" if relative else real)
    link = tmp_path / "model"
    link.symlink_to("middle" if relative else tmp_path / "middle")
    save(link)

    assert link.is_symlink()
    assert (tmp_path / "middle").is_symlink()
    assert real.read_bytes() == link.read_bytes() == NEW
    assert names(tmp_path) == ["middle", "model", "store"]
    assert names(tmp_path / "store") == ["blob"]


def test_a_dangling_link_gets_its_target(tmp_path: Path) -> None:
    link = tmp_path / "model"
    link.symlink_to("not yet")
    save(link)

    assert link.is_symlink()
    assert (tmp_path / "not yet").read_bytes() == NEW


def test_a_hard_link_keeps_the_old_content(target: Path) -> None:
    os.link(target, target.with_name("kept"))
    save(target)

    assert target.with_name("kept").read_bytes() == OLD
    assert target.read_bytes() == NEW


def test_a_dangling_link_into_nowhere_is_refused(tmp_path: Path) -> None:
    (tmp_path / "model").symlink_to("missing/model")

    with pytest.raises(SourceMissingError):
        save(tmp_path / "model")
    assert names(tmp_path) == ["model"]


def test_a_loop_of_links_is_refused(tmp_path: Path) -> None:
    (tmp_path / "model").symlink_to("model")

    with pytest.raises(TransportError):
        save(tmp_path / "model")
    assert (tmp_path / "model").is_symlink()


@pytest.mark.parametrize("kind", ["directory", "full directory", "pipe", "device", "link to a directory"])
def test_only_regular_files_are_replaced(tmp_path: Path, kind: str) -> None:
    target = tmp_path / "model"
    if kind == "pipe":
        os.mkfifo(target)
    elif kind == "device":
        target = Path("/dev/null")
    elif kind == "link to a directory":
        (tmp_path / "there").mkdir()
        target.symlink_to("there")
    else:
        target.mkdir()
        if kind == "full directory":
            (target / "file").write_bytes(OLD)
    before = target.stat()

    with pytest.raises(TransportError, match="only regular files are replaced"):
        save(target)
    assert target.stat().st_ino == before.st_ino
    assert target.stat().st_mode == before.st_mode


def test_a_missing_directory_is_named(tmp_path: Path) -> None:
    with pytest.raises(SourceMissingError, match="could not write the file") as caught:
        save(tmp_path / "missing" / "model")

    assert str(tmp_path / "missing" / "model") in str(caught.value)
    assert names(tmp_path) == []


def test_a_file_is_no_directory(target: Path) -> None:
    with pytest.raises(TransportError):
        save(target / "model")
    assert target.read_bytes() == OLD


@pytest.mark.parametrize(
    "name", ["m" * 255, "é" * 127, "\U0001f600" * 63, "m.safetensors\n", "two\nlines", " ", "-rf", "a\\b"]
)
def test_names_of_every_kind_are_written_and_their_leftovers_swept(tmp_path: Path, name: str) -> None:
    save(tmp_path / name)
    assert (tmp_path / name).read_bytes() == NEW

    with publish(tmp_path / name) as sink:
        sink.write([NEW])
        (staged,) = set(os.listdir(tmp_path)) - {name}
    (tmp_path / staged).write_bytes(NEW)  # as a killed save leaves it
    assert len(sweep_leftovers(str(tmp_path))) == 1
    assert names(tmp_path) == [name]


def test_a_name_that_is_too_long_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(TransportError):
        save(tmp_path / ("m" * 256))
    assert names(tmp_path) == []


def test_a_relative_path_is_written_where_it_led_at_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    with publish("model") as sink:
        monkeypatch.chdir("elsewhere")
        sink.write([NEW])

    assert (tmp_path / "model").read_bytes() == NEW
    assert names(tmp_path / "elsewhere") == []


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


def test_a_mount_that_forbids_renames_is_copied_to(target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = target.parent.resolve().parent / "mountinfo"
    table.write_text(f"1 0 8:1 / / rw - ext4 x rw\n2 1 0:9 / {target.parent.resolve()} rw - fuse.bucket x rw\n")
    monkeypatch.setattr(_mounts.filesystem_of, "__defaults__", (str(table),))

    def refuse(*_: object) -> None:
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "replace", refuse)
    save(target)

    assert target.read_bytes() == NEW
    assert names(target.parent) == ["model"]


@pytest.mark.parametrize(
    "flags", [("HAS_GATHERED_WRITES",), ("HAS_FALLOCATE",), ("HAS_GATHERED_WRITES", "HAS_FALLOCATE", "HAS_LOCKS")]
)
def test_portable_fallbacks_give_the_same_file(
    either: Path, flags: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    for flag in flags:
        monkeypatch.setattr(_platform, flag, False)
    save(either, durable=True)

    assert either.read_bytes() == NEW
    assert names(either.parent) == ["model"]


def test_thousands_of_small_buffers_and_large_ones_keep_their_order(tmp_path: Path) -> None:
    buffers = [place.to_bytes(4, "little") * (place % 5) for place in range(5_000)]
    buffers[1_500] = os.urandom(20_000_000)
    with publish(tmp_path / "model", durable=False) as sink:
        sink.write(iter(buffers))
        sink.write([])
        sink.write([memoryview(b"tail").cast("H")])

    assert (tmp_path / "model").read_bytes() == b"".join(buffers) + b"tail"


def test_a_save_under_way_is_not_swept_by_another(tmp_path: Path) -> None:
    sweep = f"len(sweep_leftovers({str(tmp_path)!r}))"
    program = f"import sys; from tensorkeep.transport import sweep_leftovers; sys.exit({sweep})"
    with publish(tmp_path / "slow") as sink:
        sink.write([NEW])
        staged = names(tmp_path)
        save(tmp_path / "quick")
        assert sweep_leftovers(str(tmp_path)) == []
        assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
        assert set(staged) < set(names(tmp_path))

    assert names(tmp_path) == ["quick", "slow"]


def test_two_saves_of_one_file_leave_the_last(tmp_path: Path) -> None:
    with publish(tmp_path / "model") as first:
        first.write([OLD])
        with publish(tmp_path / "model") as second:
            second.write([NEW])
        assert (tmp_path / "model").read_bytes() == NEW

    assert (tmp_path / "model").read_bytes() == OLD
    assert names(tmp_path) == ["model"]


def test_only_dead_staged_files_are_swept(tmp_path: Path) -> None:
    dead = ".model.0123456789abcdef.tensorkeep-staged"
    others = [
        "model.0123456789abcdef.tensorkeep-staged",
        ".model.0123456789abcde.tensorkeep-staged",
        ".model.0123456789abcdeg.tensorkeep-staged",
        ".model.0123456789abcdef.tensorkeep-staged.bak",
        ".model.tensorkeep-staged",
        "model",
    ]
    for name in (dead, *others):
        (tmp_path / name).write_bytes(OLD)
    folder = tmp_path / ".folder.0123456789abcdef.tensorkeep-staged"
    folder.mkdir()
    (tmp_path / "below").mkdir()
    shutil.copy(tmp_path / dead, tmp_path / "below" / dead)

    assert sweep_leftovers(str(tmp_path)) == [str(tmp_path / dead)]
    assert names(tmp_path) == sorted([*others, folder.name, "below"])
    assert names(tmp_path / "below") == [dead]
    assert sweep_leftovers(str(tmp_path / "missing")) == []


def test_a_link_that_looks_like_a_leftover_costs_nobody_their_file(tmp_path: Path) -> None:
    (tmp_path / "precious").write_bytes(OLD)
    (tmp_path / ".model.0123456789abcdef.tensorkeep-staged").symlink_to("precious")
    sweep_leftovers(str(tmp_path))

    assert (tmp_path / "precious").read_bytes() == OLD


def test_the_next_save_sweeps(tmp_path: Path) -> None:
    (tmp_path / ".gone.0123456789abcdef.tensorkeep-staged").write_bytes(OLD)
    save(tmp_path / "model")

    assert names(tmp_path) == ["model"]


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


def test_without_rights_nothing_is_written_and_the_error_says_so(tmp_path: Path) -> None:
    folder = tmp_path / "read only"
    folder.mkdir()
    (folder / "model").write_bytes(OLD)
    (folder / "secret").write_bytes(OLD)
    (folder / "secret").chmod(0)
    for parent in (folder, *folder.parents):
        if parent.is_relative_to("/tmp") and parent != Path("/tmp"):
            parent.chmod(parent.stat().st_mode | 0o055)
    done = subprocess.run([sys.executable, "-c", AS_NOBODY, str(folder)], capture_output=True, text=True, check=False)

    assert done.stdout.splitlines() == ["AccessDeniedError True 13"] * 2, done.stderr
    assert names(folder) == ["model", "secret"]
    assert (folder / "model").read_bytes() == OLD
    assert issubclass(AccessDeniedError, PermissionError)

"""A published file appears whole or not at all, under the name and with the mode that it should have."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tensorkeep.errors import SourceMissingError, TransportError
from tensorkeep.transport import publish
from tests.support.transport.publishing import NEW, OLD, names, save


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture
def umask() -> Iterator[Callable[[int], None]]:
    before = os.umask(0o022)

    def change(mask: int) -> None:
        os.umask(mask)

    yield change
    os.umask(before)


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
    with pytest.raises(SourceMissingError, match=r"No such file or directory.*Create the directory") as caught:
        save(tmp_path / "missing" / "model")

    assert str(tmp_path / "missing") in str(caught.value)
    assert names(tmp_path) == []


def test_a_file_is_no_directory(target: Path) -> None:
    with pytest.raises(TransportError):
        save(target / "model")
    assert target.read_bytes() == OLD


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


def test_thousands_of_small_buffers_and_large_ones_keep_their_order(tmp_path: Path) -> None:
    buffers = [place.to_bytes(4, "little") * (place % 5) for place in range(5_000)]
    buffers[1_500] = os.urandom(20_000_000)
    with publish(tmp_path / "model", durable=False) as sink:
        sink.write(iter(buffers))
        sink.write([])
        sink.write([memoryview(b"tail").cast("H")])

    assert (tmp_path / "model").read_bytes() == b"".join(buffers) + b"tail"


def test_two_saves_of_one_file_leave_the_last(tmp_path: Path) -> None:
    with publish(tmp_path / "model") as first:
        first.write([OLD])
        with publish(tmp_path / "model") as second:
            second.write([NEW])
        assert (tmp_path / "model").read_bytes() == NEW

    assert (tmp_path / "model").read_bytes() == OLD
    assert names(tmp_path) == ["model"]

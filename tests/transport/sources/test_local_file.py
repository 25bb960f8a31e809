"""What local files refuse, and how they travel: pickled, through a fork, while somebody replaces them."""

from __future__ import annotations

import os
import pickle
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tensorkeep.errors import SourceChangedError, SourceMissingError, TransportError
from tensorkeep.transport import ByteRange, LocalFile

CONTENT = b"0123456789" * 100


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "content"
    path.write_bytes(CONTENT)
    return path


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(SourceMissingError, match="No such file or directory") as caught:
        LocalFile(str(tmp_path / "none"))

    assert isinstance(caught.value, FileNotFoundError)
    assert str(tmp_path / "none") in str(caught.value)


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("model.safetensor", "model.safetensors"),
        ("Modle.safetensors", "model.safetensors"),
        ("checkpoint", "checkpoints"),
        ("final.pt", "final.pth"),
    ],
)
def test_a_slip_of_the_pen(tmp_path: Path, name: str, meant: str) -> None:
    for other in ("a.safetensors", "log.txt", meant):
        (tmp_path / other).touch()

    with pytest.raises(SourceMissingError) as caught:
        LocalFile(str(tmp_path / name))

    assert caught.value.hint == f"Did you mean {tmp_path / meant}?"


@pytest.mark.parametrize("name", ["b.safetensors", "model-00002.safetensors", "model.pt", "nothing", "none/model"])
def test_other_names_are_no_slips(tmp_path: Path, name: str) -> None:
    for other in ("a.safetensors", "model-00001.safetensors"):
        (tmp_path / other).touch()

    with pytest.raises(SourceMissingError) as caught:
        LocalFile(str(tmp_path / name))

    assert caught.value.hint is None


def test_only_regular_files_are_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.mkfifo(tmp_path / "pipe")
    with socket.socket(socket.AF_UNIX) as listener:
        monkeypatch.chdir(tmp_path)  # paths of sockets are short
        listener.bind("socket")
        for name in (tmp_path, tmp_path / "pipe", tmp_path / "socket", Path("/dev/zero")):
            with pytest.raises(TransportError, match=r"not a regular file|could not open the file"):
                LocalFile(str(name))


def test_a_dangling_link_is_a_missing_file(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("nowhere")

    with pytest.raises(SourceMissingError):
        LocalFile(str(tmp_path / "link"))


def test_a_loop_of_links_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("link")

    with pytest.raises(TransportError):
        LocalFile(str(tmp_path / "link"))


def test_a_file_below_a_file_is_an_error(path: Path) -> None:
    with pytest.raises(TransportError):
        LocalFile(str(path / "below"))


def test_it_pickles_as_its_path(path: Path) -> None:
    copy = pickle.loads(pickle.dumps(LocalFile(str(path), backend="pread")))

    assert copy.backend == "pread"
    assert bytes(copy.read(ByteRange(3, 13))) == CONTENT[3:13]


@pytest.mark.parametrize("change", ["content", "size", "replaced", "removed"])
def test_a_pickled_file_is_the_same_file_or_an_error(path: Path, change: str) -> None:
    pickled = pickle.dumps(LocalFile(str(path)))
    if change == "content":
        path.write_bytes(CONTENT[::-1])
        os.utime(path, ns=(1, 1))
    elif change == "size":
        path.write_bytes(CONTENT + b"x")
    elif change == "replaced":
        status = path.stat()
        path.with_name("other").write_bytes(CONTENT)
        os.utime(path.with_name("other"), ns=(status.st_atime_ns, status.st_mtime_ns))
        path.with_name("other").replace(path)
    else:
        path.unlink()

    with pytest.raises(SourceMissingError if change == "removed" else SourceChangedError):
        pickle.loads(pickled)


def test_a_relative_path_still_leads_to_the_file_after_chdir(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(path.parent)
    file = LocalFile(path.name)
    monkeypatch.chdir("/")

    copy = pickle.loads(pickle.dumps(file))

    assert bytes(copy.read(ByteRange(0, 10))) == CONTENT[:10]


@pytest.mark.parametrize("backend", ["mmap", "pread"])
def test_an_open_file_keeps_its_bytes_when_its_name_goes_to_another(path: Path, backend: str) -> None:
    file = LocalFile(str(path), backend=backend)  # type: ignore[arg-type]
    path.with_name("new").write_bytes(b"x" * len(CONTENT))
    path.with_name("new").replace(path)

    assert bytes(file.read(ByteRange(0, 10))) == CONTENT[:10]
    mapping = file.map(ByteRange(0, 10))
    assert mapping is None or bytes(memoryview(mapping[0])[:10]) == CONTENT[:10]


def test_parent_and_child_read_side_by_side_after_a_fork(path: Path) -> None:
    program = f"""
import os
from tensorkeep.transport import ByteRange, LocalFile
content = open({str(path)!r}, "rb").read()
file = LocalFile({str(path)!r}, backend="pread")
pids = []
for _ in range(3):
    pid = os.fork()
    if not pid:
        good = all(bytes(file.read(ByteRange(n, n + 9))) == content[n : n + 9] for n in list(range(900)) * 5)
        os._exit(0 if good else 1)
    pids.append(pid)
assert all(bytes(file.read(ByteRange(n, n + 9))) == content[n : n + 9] for n in list(range(900)) * 5)
assert [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids] == [0, 0, 0]
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr


def test_the_descriptor_is_not_inherited_by_other_programs(path: Path) -> None:
    file = LocalFile(str(path))

    listed = subprocess.run(["ls", "-l", "/proc/self/fd"], capture_output=True, text=True, check=True).stdout

    assert str(path) not in listed
    assert file.nbytes == len(CONTENT)

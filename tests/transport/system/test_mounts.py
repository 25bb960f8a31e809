"""Which file systems are mapped and which are read, from mount tables as Linux writes them (proc(5))."""

from __future__ import annotations

from pathlib import Path

import pytest

from tensorkeep.transport import LocalFile
from tensorkeep.transport.system import _mounts
from tensorkeep.transport.system._mounts import filesystem_of, mapping_pays

TABLE = r"""22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
23 22 0:21 / /proc rw,nosuid - proc proc rw
30 22 0:30 / /nfs rw,relatime shared:5 - nfs4 server:/export rw,vers=4.2
31 30 0:31 / /nfs/local rw - ext4 /dev/sdb1 rw
32 31 0:32 / /nfs/local/far rw master:3 propagate_from:2 - cifs //server/share rw
33 22 0:33 / /home/me/my\040models\011a\134b rw - fuse.sshfs me@host:/ rw
34 22 0:34 / /overlay rw - overlay overlay rw,lowerdir=/l,upperdir=/u
35 22 0:35 / /hot rw - nfs4 server:/a rw
36 35 0:36 / /hot rw - xfs /dev/sdc1 rw
37 22 0:37 / /fuse rw - fuse gcsfuse rw
38 22 0:38 / /disk rw - fuseblk /dev/sdd1 rw
39 22 0:39 /sub /bind rw - btrfs /dev/sde1 rw
40 22 0:40 / /lustre rw - lustre mgs:/fs rw
41 22 0:41 / /wsl rw - 9p C:\134 rw
42 22 0:42 / /shm rw - tmpfs tmpfs rw
"""


@pytest.fixture
def table(tmp_path: Path) -> str:
    path = tmp_path / "mountinfo"
    path.write_text(TABLE)
    return str(path)


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/etc/passwd", "ext4"),
        ("/", "ext4"),
        ("/nfs", "nfs4"),
        ("/nfs/model.safetensors", "nfs4"),
        ("/nfsx/model.safetensors", "ext4"),
        ("/nfs/local/model.safetensors", "ext4"),
        ("/nfs/locality/model.safetensors", "nfs4"),
        ("/nfs/local/far/a/b", "cifs"),
        ("/home/me/my models\ta\\b/m.safetensors", "fuse.sshfs"),
        ("/home/me/my models", "ext4"),
        ("/overlay/model", "overlay"),
        ("/hot/model", "xfs"),
        ("/bind/model", "btrfs"),
    ],
)
def test_the_innermost_mount_counts(table: str, path: str, kind: str) -> None:
    assert filesystem_of(path, table) == kind


@pytest.mark.parametrize(
    ("path", "pays"),
    [
        ("/model", True),
        ("/nfs/model", False),
        ("/nfs/local/model", True),
        ("/nfs/local/far/model", False),
        ("/home/me/my models\ta\\b/model", False),
        ("/overlay/model", True),
        ("/hot/model", True),
        ("/fuse/model", False),
        ("/disk/model", False),
        ("/lustre/model", False),
        ("/wsl/model", False),
        ("/shm/model", True),
    ],
)
def test_mapping_pays_on_local_disks_only(table: str, path: str, pays: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(filesystem_of, "__defaults__", (table,))

    assert mapping_pays(path) == pays


@pytest.mark.parametrize("text", ["", "not a table\n", "1 2 3 4 /\n", "1 2 3 4 / rw\n\n", "\xff\xfe"])
def test_a_table_that_cannot_be_read_says_nothing(tmp_path: Path, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "mountinfo"
    path.write_text(text, encoding="latin-1")
    monkeypatch.setattr(filesystem_of, "__defaults__", (str(path),))

    assert filesystem_of("/etc/passwd") is None
    assert mapping_pays("/etc/passwd")


def test_without_a_table_files_are_mapped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(filesystem_of, "__defaults__", (str(tmp_path / "none"),))

    assert mapping_pays(str(tmp_path))


@pytest.mark.parametrize(
    ("kind", "backend"), [("nfs4", "pread"), ("fuse.sshfs", "pread"), ("overlay", "mmap"), ("ext4", "mmap")]
)
def test_a_file_is_read_where_mapping_does_not_pay(
    tmp_path: Path, kind: str, backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path.resolve()
    table = root / "mountinfo"
    table.write_text(f"1 0 8:1 / / rw - ext4 /dev/sda1 rw\n2 1 0:9 / {root} rw - {kind} x rw\n")
    model = root / "model"
    model.write_bytes(b"content")
    link = root / "link"
    link.symlink_to(model)
    monkeypatch.setattr(filesystem_of, "__defaults__", (str(table),))

    assert LocalFile(str(model)).backend == backend
    assert LocalFile(str(link)).backend == backend
    assert LocalFile(str(model), backend="mmap").backend == "mmap"
    assert LocalFile(str(model), backend="pread").backend == "pread"


def test_the_real_table_knows_the_real_mounts() -> None:
    assert filesystem_of("/proc/self/status") == "proc"
    assert filesystem_of("/") is not None
    assert _mounts.mapping_pays("/")

"""Which file system a path is on: mapping a file pays on local disks and crawls on networks.

A mapped file is read page by page as it is touched. Over NFS, FUSE and the like each page fault is a separate
request, so large ordered reads are many times faster there.
"""

from __future__ import annotations

import os
from typing import Final

_MOUNTINFO: Final = "/proc/self/mountinfo"

_REMOTE: Final = frozenset({
    *("9p", "afs", "beegfs", "ceph", "cifs", "davfs", "drvfs", "gfs2", "glusterfs", "gpfs", "juicefs"),
    *("lustre", "ncpfs", "nfs", "nfs4", "ocfs2", "orangefs", "panfs", "smb3", "smbfs", "sshfs", "vboxsf"),
    *("virtiofs", "vmhgfs", "wekafs"),
})


_EXTENT_BASED: Final = frozenset({"ext4", "xfs", "f2fs"})


def filesystem_of(path: str, mountinfo: str = _MOUNTINFO) -> str | None:
    """Return the type of the file system that a path is on."""
    try:
        device = os.stat(path).st_dev
    except OSError:  # nothing exists there yet
        return _look_up(os.path.realpath(path), mountinfo)
    if (device, mountinfo) not in _kinds:  # the type of a device does not change
        _kinds[device, mountinfo] = _look_up(os.path.realpath(path), mountinfo)
    return _kinds[device, mountinfo]


_kinds: dict[tuple[int, str], str | None] = {}


def _look_up(real: str, mountinfo: str) -> str | None:
    """Find the type of the innermost mount that contains a path."""
    best = ""
    kind = None
    try:
        with open(mountinfo, encoding="utf-8", errors="surrogateescape") as table:
            for line in table:
                fields = line.split(" ")
                mount_point = _unescape(fields[4]) if "\\" in fields[4] else fields[4]
                inside = real == mount_point or real.startswith(mount_point.rstrip("/") + "/")
                if inside and len(mount_point) >= len(best):
                    best = mount_point
                    kind = fields[fields.index("-") + 1]
    except (OSError, ValueError, IndexError):
        return None
    return kind


def _unescape(mount_point: str) -> str:
    for code, char in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        mount_point = mount_point.replace(code, char)
    return mount_point


def mapping_pays(path: str) -> bool:
    """Say whether a file should be mapped rather than read."""
    kind = filesystem_of(path)
    return kind is None or not (kind in _REMOTE or kind.partition(".")[0] in {"fuse", "fuseblk"})


def preallocation_pays(directory: str) -> bool:
    """Say whether reserving a file's blocks before it is written makes the writing faster.

    Where blocks are recorded as extents, reserving is one cheap step. Elsewhere it is useless (btrfs copies on
    write), costs as much as writing (tmpfs fills the pages with zeros), or is done by libc block by block (NFS).
    """
    return filesystem_of(directory) in _EXTENT_BASED

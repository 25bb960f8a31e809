"""Opens files below the served directory, and nothing else.

A path is opened one step at a time, never following a symbolic link. A link is resolved first, and its target is then
opened in the same way, so a link that changes in between leads nowhere. So links that stay inside the directory are
followed, and none leads out of it.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from tensorkeep.server._paths import is_served

_STEPWISE: Final = os.open in os.supports_dir_fd and hasattr(os, "O_NOFOLLOW")
"""Whether this system can open a name relative to an open folder; Windows cannot."""

_FLAGS: Final = (
    os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
)  # without waiting for the other end of a pipe
_STEP_FLAGS: Final = _FLAGS | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_PATH", 0)
_NOFOLLOW: Final = getattr(os, "O_NOFOLLOW", 0)
_LINK: Final = {errno.ELOOP, errno.ENOTDIR, errno.EMLINK}
"""How systems say that a step is a link."""

_NOTHING: Final = {*_LINK, errno.ENOENT, errno.ENXIO, errno.ENAMETOOLONG}


class Opened(NamedTuple):
    """An open file or folder.

    Attributes:
        fd: Its descriptor, which the caller closes; -1 for a folder if the system cannot open folders.
        path: Its path when it was opened.
        status: `fstat` of the descriptor: of the file that was opened, even if its name is another file now.
    """

    fd: int
    path: str
    status: os.stat_result

    @property
    def is_folder(self) -> bool:
        """Whether it is a folder; otherwise it is a regular file."""
        return stat.S_ISDIR(self.status.st_mode)

    def close(self) -> None:
        """Close the descriptor, if there is one."""
        if self.fd >= 0:
            os.close(self.fd)


class Entry(NamedTuple):
    """An entry of a folder.

    Attributes:
        name: Its own name.
        is_folder: Whether it is a folder.
        nbytes: Bytes of a file.
        modified_s: When it was last changed, in seconds since 1970.
    """

    name: str
    is_folder: bool
    nbytes: int
    modified_s: float


def open_below(root: str, names: Sequence[str]) -> Opened | None:
    """Open a file or a folder."""
    try:
        if not _STEPWISE:
            return _opened_by_path(root, names)
        try:
            return _opened(root, names)
        except OSError as error:
            if error.errno not in _LINK:
                raise
        real = _resolved(root, names)
        return _opened(root, real) if real is not None else None
    except OSError as error:
        if error.errno in _NOTHING:
            return None
        raise


def _opened(root: str, names: Sequence[str]) -> Opened | None:
    fd = os.open(root, _STEP_FLAGS if names else _FLAGS)
    for place, name in enumerate(names, start=1):
        around = fd
        try:
            fd = os.open(name, (_STEP_FLAGS if place < len(names) else _FLAGS) | _NOFOLLOW, dir_fd=around)
        finally:
            os.close(around)
    try:
        status = os.fstat(fd)
    except BaseException:
        os.close(fd)
        raise
    if stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode):
        return Opened(fd, os.path.join(root, *names), status)
    os.close(fd)
    return None


def _resolved(root: str, names: Sequence[str]) -> list[str] | None:
    """Resolve links; None if they lead out of the directory, or to a name that is not served."""
    home = os.path.realpath(root)
    path = os.path.realpath(os.path.join(home, *names))
    try:
        if os.path.commonpath((home, path)) != home:
            return None
    except ValueError:  # on another drive
        return None
    relative = os.path.relpath(path, home)
    real = [] if relative == os.curdir else relative.split(os.sep)
    return real if all(map(is_served, real)) else None


def _opened_by_path(root: str, names: Sequence[str]) -> Opened | None:
    """Open a path at once, where the system cannot open step by step; a link changed meanwhile may lead outside."""
    real = _resolved(root, names)
    if real is None:
        return None
    path = os.path.join(os.path.realpath(root), *real)
    status = os.stat(path)
    if stat.S_ISDIR(status.st_mode):
        return Opened(-1, path, status)
    if not stat.S_ISREG(status.st_mode):
        return None
    fd = os.open(path, _FLAGS)
    return Opened(fd, path, os.fstat(fd))


def entries_of(root: str, folder: Opened) -> Iterator[Entry]:
    """Yield the served entries of a folder, in no particular order."""
    inside = os.path.relpath(folder.path, root)
    around = [] if inside == os.curdir else inside.split(os.sep)
    with os.scandir(folder.path if folder.fd < 0 else folder.fd) as found:
        for each in found:
            if not is_served(each.name):
                continue
            try:
                status = _status_of(root, around, each)
            except OSError:  # just removed
                continue
            if status is not None and (stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode)):
                is_folder = stat.S_ISDIR(status.st_mode)
                yield Entry(each.name, is_folder, 0 if is_folder else status.st_size, status.st_mtime)


def _status_of(root: str, around: Sequence[str], entry: os.DirEntry[str]) -> os.stat_result | None:
    """Return the status of an entry or its link's target; None if the target is not served."""
    if not entry.is_symlink():
        return entry.stat(follow_symlinks=False)
    real = _resolved(root, [*around, entry.name])
    return None if real is None else os.stat(os.path.join(root, *real), follow_symlinks=False)

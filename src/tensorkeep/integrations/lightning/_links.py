"""Links to the last checkpoint, which ModelCheckpoint creates with `save_last="link"`.

It updates them as soon as a save has started, whether or not it is written yet, and after it has removed the
checkpoint they point to. A run that is killed in between would find a broken link, and start from the beginning.
"""

from __future__ import annotations

import os
from typing import Final

from tensorkeep.errors import as_transport_error
from tensorkeep.transport import is_remote

LAST: Final = "last"
"""The start of names of checkpoints that ModelCheckpoint keeps replacing, and of links in their place."""

_NEW: Final = ".tensorkeep-link"


def links_to_last(directory: str) -> list[str]:
    """Return the links to last checkpoints in a directory; a bucket has no links."""
    if is_remote(directory):
        return []
    with os.scandir(directory or os.curdir) as entries:
        return [entry.path for entry in entries if entry.name.startswith(LAST) and entry.is_symlink()]


def redirect_links(path: str, newest: str) -> None:
    """Redirect links from a checkpoint about to be removed to the newest one, as ModelCheckpoint does next."""
    directory = os.path.dirname(path)
    if not os.path.exists(path) or not os.path.exists(newest) or os.path.samefile(path, newest):
        return
    for link in links_to_last(directory):
        if os.path.abspath(os.path.join(directory, os.readlink(link))) == os.path.abspath(path):
            _replace(link, os.path.relpath(newest, directory or os.curdir))


def _replace(link: str, target: str) -> None:
    new = os.path.join(os.path.dirname(link), f".{os.path.basename(link)}{_NEW}")
    with as_transport_error("could not replace the link", link):
        if os.path.lexists(new):  # left by a process that was killed here
            os.unlink(new)
        os.symlink(target, new)
        os.replace(new, link)

"""Links to the last checkpoint, which ModelCheckpoint makes with `save_last="link"`.

It changes them after a save: when it has begun, whether it is written or not, and when the checkpoint that they lead
to is gone already. A run that is killed then would find a link that leads nowhere, and begin anew.
"""

from __future__ import annotations

import os
from typing import Final

from tensorkeep.errors import as_transport_error

LAST: Final = "last"
"""How names begin of checkpoints that ModelCheckpoint saves over and over, and of links in their place."""

_NEW: Final = ".tensorkeep-link"


def links_to_last(directory: str) -> list[str]:
    """Return the links to last checkpoints."""
    with os.scandir(directory or os.curdir) as entries:
        return [entry.path for entry in entries if entry.name.startswith(LAST) and entry.is_symlink()]


def lead_on(path: str, newest: str) -> None:
    """Have links to a checkpoint that is about to be removed lead to the newest, as ModelCheckpoint does next."""
    directory = os.path.dirname(path)
    if not os.path.exists(path) or not os.path.exists(newest) or os.path.samefile(path, newest):
        return
    for link in links_to_last(directory):
        if os.path.abspath(os.path.join(directory, os.readlink(link))) == os.path.abspath(path):
            _replace(link, os.path.relpath(newest, directory or os.curdir))


def _replace(link: str, target: str) -> None:
    new = os.path.join(os.path.dirname(link), f".{os.path.basename(link)}{_NEW}")
    with as_transport_error("could not replace the link", link):
        if os.path.lexists(new):  # of a process that was killed here
            os.unlink(new)
        os.symlink(target, new)
        os.replace(new, link)

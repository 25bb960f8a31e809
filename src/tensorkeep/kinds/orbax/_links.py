"""Links and names that lead out of a checkpoint: another program's files must not turn up as tensors."""

from __future__ import annotations

import os
from collections.abc import Iterable

from tensorkeep.errors import FormatError, as_transport_error
from tensorkeep.paths import is_inside
from tensorkeep.transport import is_at_home


def size_without_links(directory: str) -> int:
    """Return the bytes of all files, after refusing links that lead elsewhere."""
    is_ours = is_at_home(directory)
    nbytes = 0
    rest = [directory]
    while rest:
        folder = rest.pop()
        with as_transport_error("could not list the checkpoint", folder), os.scandir(folder) as entries:
            for entry in entries:
                if entry.is_symlink() and not is_ours(entry.path):
                    raise FormatError(
                        "a link leads out of the checkpoint",
                        path=entry.path,
                        expected=f"files below {os.path.realpath(directory)}",
                        found=os.path.realpath(entry.path),
                    )
                if entry.is_dir(follow_symlinks=False):
                    rest.append(entry.path)
                elif entry.is_file():
                    nbytes += entry.stat().st_size
                elif entry.is_dir():
                    raise FormatError("a directory of the checkpoint is a link", path=entry.path)
    return nbytes


def refuse_outside(names: Iterable[str], directory: str) -> None:
    """Refuse arrays whose names are no paths to directories in the checkpoint."""
    for name in names:
        if not is_inside(name):
            raise FormatError(
                "the name of an array does not lead to a directory in the checkpoint",
                path=directory,
                tensor=name,
                found=repr(name),
            )

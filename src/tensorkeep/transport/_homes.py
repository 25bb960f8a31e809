"""Where the files of a local directory may be, if some of them are links."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Final

_SNAPSHOTS: Final = f"{os.sep}snapshots{os.sep}"


def is_at_home(directory: str) -> Callable[[str], bool]:
    """Return what says whether a path, links resolved, is in a directory.

    The cache of the Hugging Face Hub counts as a part of its snapshots, which are links to blobs beside them.
    """
    cache, is_snapshot, _ = os.path.abspath(directory).rpartition(_SNAPSHOTS)
    homes = [directory, *([os.path.join(cache, "blobs")] if is_snapshot else [])]
    allowed = tuple(os.path.join(os.path.realpath(home), "") for home in homes)
    return lambda path: os.path.realpath(path).startswith(allowed)

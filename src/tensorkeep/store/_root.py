"""The directory of a store."""

from __future__ import annotations

import os
from errno import ENOTDIR

from tensorkeep.errors import SourceMissingError, TransportError
from tensorkeep.transport import local_path


def resolve_root(given: str | os.PathLike[str]) -> str:
    """Return the absolute path of a store; nothing need be there yet.

    It is resolved at once: the working directory may be another when a thread saves.
    """
    root = os.path.abspath(local_path(given, hint="The URL of one of its steps can be opened"))
    if os.path.exists(root) and not os.path.isdir(root):
        raise TransportError(
            "the store is not a directory", path=root, found="a file", hint="Give it another name"
        ).numbered(ENOTDIR)
    return root


def require_store(root: str) -> None:
    """Refuse a directory that does not exist."""
    if not os.path.isdir(root):
        raise SourceMissingError.at(root)

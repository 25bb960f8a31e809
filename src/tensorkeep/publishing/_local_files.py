"""Files of a directory that are published, and what nobody should publish by accident."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable

import msgspec

from tensorkeep.encryption import may_be_key
from tensorkeep.errors import RefusedError, UnsupportedError, as_transport_error
from tensorkeep.fetching import MAX_COMPANION_NBYTES
from tensorkeep.paths import is_inside
from tensorkeep.transport import is_at_home

_secret_in = re.compile(
    rb"(?P<a_private_key>-----BEGIN (?:[A-Z0-9]+ )*PRIVATE KEY-----)"
    rb"|(?P<a_token>(?<![A-Za-z0-9])(?:(?:hf_oauth_|hf_)[A-Za-z0-9]{34,}|gh[oprsu]_[A-Za-z0-9]{36,}|github_pat_[A-Za-z0-9_]{50,}))"
).search


class LocalFile(msgspec.Struct, frozen=True):
    """A file that is published.

    Attributes:
        path: Where it is.
        nbytes: Its size.
        mtime_ns: When it was last changed.
        sha256: Its SHA-256, if the index records it and that was checked.
    """

    path: str
    nbytes: int
    mtime_ns: int
    sha256: str | None = None


def look_at(directory: str, names: Iterable[str]) -> dict[str, LocalFile]:
    """Look at files below a directory by their names, which are the same on every system and not hidden."""
    found = {}
    for name in dict.fromkeys(names):
        if not is_inside(name) or any(part.startswith(".") for part in name.split("/")):
            raise RefusedError("a file with this name cannot be published", path=directory, found=repr(name))
        path = os.path.join(directory, *name.split("/"))
        status = status_of(path)
        if not stat.S_ISREG(status.st_mode):
            raise UnsupportedError("not a file that can be published", path=path)
        found[name] = LocalFile(path, status.st_size, status.st_mtime_ns)
    return found


def status_of(path: str) -> os.stat_result:
    """Return what the system says of a file."""
    with as_transport_error("could not read the file", path):
        return os.stat(path)


def refuse_unaware(files: Iterable[LocalFile], directory: str) -> None:
    """Refuse files beside tensors that are links out of the directory, or hold a secret.

    The directory may be a stranger's, with a link to a private file of the user.
    """
    is_ours = is_at_home(directory)
    for file in files:
        if not is_ours(file.path):
            raise RefusedError(
                "a link leads out of the directory, so its file is not published",
                path=file.path,
                found=os.path.realpath(file.path),
                hint="If everybody may read the file, copy it into the directory",
            )
        if file.nbytes <= MAX_COMPANION_NBYTES:
            _refuse_secret(file)


def _refuse_secret(file: LocalFile) -> None:
    with as_transport_error("could not read the file", file.path), open(file.path, "rb") as opened:
        content = opened.read(file.nbytes)
    found = _secret_in(content)
    if found or may_be_key(content):
        raise RefusedError(
            "the file contains a secret, so it is not published",
            path=file.path,
            found=str(found.lastgroup).replace("_", " ") if found else "a key that decrypts",
            hint="Move it out of the directory",
        )

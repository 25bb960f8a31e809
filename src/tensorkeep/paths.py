"""One rule for file names that come out of files: indexes, manifests, `.metadata`, listings of servers. Pure.

A name passes if it means one and the same file on every system, wherever it is joined to a directory. So a path has
`/` between its parts and no other separator, is relative, and never goes up; there are no colons (drives, and on NTFS
the streams of a file), and no characters that a terminal obeys or that hide what a name ends with.

Names that a user gives need not be portable: a file on Linux may be called `at-12:00.ckpt`.
"""

from __future__ import annotations

import os
import re

# Control characters, line separators, marks that reverse the direction of text, and halves of surrogate pairs, which
# stand for bytes that are not UTF-8.
_has_forbidden = re.compile(
    r"[/\\:\x00-\x1f\x7f-\x9f\u2028\u2029\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
).search

_is_device = re.compile(r"(?:con|prn|aux|nul|com[0-9]|lpt[0-9])\s*(?:\.|\Z)", re.IGNORECASE).match

_leads_elsewhere = re.compile(r"[/\\\x00\ud800-\udfff]|\A[\s\S]:").search


def is_plain_name(name: str) -> bool:
    """Whether a name is that of one file in a directory, on every system."""
    # Windows drops dots and spaces at the end, so that nothing would be left of a name made of them.
    return not _has_forbidden(name) and bool(name.strip(". "))


def is_inside(path: str) -> bool:
    """Whether a path with `/` between its parts leads to a file below the directory that it is joined to."""
    return all(map(is_plain_name, path.split("/")))


def is_portable(path: str) -> bool:
    """Whether a path that `is_inside` also keeps its spelling: Windows drops dots at the end, and reserves `CON`."""
    parts = path.split("/")
    return is_inside(path) and not any(part.endswith((".", " ")) or _is_device(part) for part in parts)


def is_local_name(name: str) -> bool:
    """Whether a name that a user gave is that of one file in a directory, on this system at least."""
    if os.name == "nt":
        return is_plain_name(name)
    return name not in {"", ".", ".."} and not _leads_elsewhere(name)


def source_path(given: object, caller: str, takes: str = "paths") -> str:
    """Return the path of a checkpoint as text; refuse anything else, such as tensors by name."""
    if isinstance(given, str | os.PathLike):
        return os.fsdecode(given)
    found = type(given).__name__
    raise TypeError(f"{caller} takes {takes}, not {found}; tensorkeep.save_checkpoint writes tensors, also to shards")

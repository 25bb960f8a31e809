"""The file names of a checkpoint, and the text file that says which checkpoint of a directory is the latest. Pure."""

from __future__ import annotations

import re
from typing import Final

from tensorkeep.errors import FormatError
from tensorkeep.paths import is_inside

INDEX_SUFFIX: Final = ".index"
STATE_FILE: Final = "checkpoint"
MAX_STATE_NBYTES: Final = 2**20
"""Bytes of the text file; it lists the checkpoints that are kept, rarely over 100."""

_stem_of = re.compile(r"(.+)(?:\.index|\.meta|\.data-\d{5}-of-\d{5})", re.DOTALL).fullmatch
_is_data_name = re.compile(r".+\.data-[0-9]{5}-of-[0-9]{5}", re.DOTALL).fullmatch
_find_latest = re.compile(r'^\s*model_checkpoint_path\s*:\s*"((?:[^"\\\n]|\\.)*)"', re.MULTILINE).search
_replace_escapes = re.compile(r"\\([0-7]{1,3}|.)").sub


def stem_of(name: str) -> str | None:
    """Return the beginning that the names of all files of a checkpoint share; None for the name of another file."""
    match = _stem_of(name)
    return match and match[1]


def is_data_name(name: str) -> bool:
    """Say whether a file of this name has data of a checkpoint."""
    return _is_data_name(name) is not None


def data_name(stem: str, shard: int, n_shards: int) -> str:
    """Return the name of a data file."""
    return f"{stem}.data-{shard:05d}-of-{n_shards:05d}"


def latest_in(text: bytes) -> str:
    """Return the stem of the latest checkpoint, as the text file in its directory names it.

    A path from the root is of the machine on which the checkpoint was saved: only its last part counts.
    """
    match = _find_latest(text.decode(errors="replace"))
    if match is None:
        raise FormatError(
            f"`{STATE_FILE}` does not say which checkpoint is the latest",
            expected='a line model_checkpoint_path: "..."',
            found=f"{text[:100]!r}",
        )
    stem = _replace_escapes(_unescaped, match[1])
    if stem.startswith("/") or "://" in stem:
        stem = stem.rpartition("/")[2]
    if not is_inside(stem):
        raise FormatError(f"`{STATE_FILE}` names a checkpoint outside its directory", found=repr(stem)[:200])
    return stem


def _unescaped(match: re.Match[str]) -> str:
    return chr(int(match[1], 8)) if match[1].isdigit() else match[1]

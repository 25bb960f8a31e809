"""NumPy's files as kinds: one array (`.npy`), and a zip archive of arrays (`.npz`)."""

from __future__ import annotations

from typing import Final

from tensorkeep.formats.npy import ARCHIVE_SUFFIX, MAGIC, is_npz, parse_npy, parse_npz
from tensorkeep.kinds.base import Kind, Place, file_kind

NPY: Final[Kind[Place]] = file_kind("a NumPy array", parse_npy, suffixes=(".npy",), magic=MAGIC)
NPZ: Final[Kind[Place]] = file_kind(
    "a NumPy archive", parse_npz, suffixes=(ARCHIVE_SUFFIX,), magic=b"PK", is_one=is_npz
)

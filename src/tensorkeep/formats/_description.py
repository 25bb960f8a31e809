"""What the headers of files declare: everything that `tensorkeep inspect` shows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec

from tensorkeep.entries import TensorEntry

Digests = Literal["all", "some", "none", "stale"]
"""Which tensors have a digest; `"stale"` if the digests of a file do not match its own header."""


class FileDescription(msgspec.Struct, frozen=True):
    """The contents of one file.

    Attributes:
        file: File name, without the directory.
        file_nbytes: Size in bytes.
        data_start: Byte at which the data begins.
        entries: Name to tensor, in the order of the bytes.
        metadata: The user's metadata, or None if the file has none.
        digests: Which of its tensors have a digest.
        form: The format, for people.
        dangers: Names that could only do harm, and why.
    """

    file: str
    file_nbytes: int
    data_start: int
    entries: Mapping[str, TensorEntry]
    metadata: Mapping[str, str] | None = None
    digests: Digests = "none"
    form: str = "safetensors"
    dangers: Mapping[str, str] = {}


class Description(msgspec.Struct, frozen=True):
    """The contents of a checkpoint.

    Attributes:
        files: Its files, in order.
        index: Name of the index or directory; None for a single file.
        splits: Names of the pieces of each tensor that is split over files; `files` list the pieces.
        state: The text that describes a training state, or None.
        stored: Name to tensor, for the tensors that this text may refer to.
    """

    files: tuple[FileDescription, ...]
    index: str | None = None
    splits: Mapping[str, tuple[str, ...]] = {}
    state: str | None = None
    stored: Mapping[str, TensorEntry] = {}

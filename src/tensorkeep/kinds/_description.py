"""What headers say of files: all that `tensorkeep inspect` shows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec

from tensorkeep.entries import TensorEntry

Digests = Literal["all", "some", "none", "stale"]
"""Which tensors carry a digest; `"stale"` where the digests of a file do not fit its own header."""


class FileDescription(msgspec.Struct, frozen=True):
    """What one file holds.

    Attributes:
        file: Its name, without the directory.
        file_nbytes: Its size in bytes.
        data_start: Byte of the file at which the data begins.
        entries: Name to tensor, in the order of the bytes.
        metadata: Free text by key, without what the file says of itself, or None where it has none.
        digests: Which of its tensors carry one.
        form: What kind of file it is.
        n_unknown: Objects in it that are not known to be data.
        dangers: Names in it that could only do harm, and why.
    """

    file: str
    file_nbytes: int
    data_start: int
    entries: Mapping[str, TensorEntry]
    metadata: Mapping[str, str] | None = None
    digests: Digests = "none"
    form: str = "safetensors"
    n_unknown: int = 0
    dangers: Mapping[str, str] = {}


class Description(msgspec.Struct, frozen=True):
    """What a checkpoint of one or more files holds.

    Attributes:
        files: Its files, in order.
        index: What stands for all of them, such as the name of an index; None where there is one file only.
        splits: Name of a tensor that is cut over files to the names of its pieces, which `files` list as tensors.
        state: The text that describes a whole state; None where there is none.
        stored: Name to tensor, of what that text may refer to.
    """

    files: tuple[FileDescription, ...]
    index: str | None = None
    splits: Mapping[str, tuple[str, ...]] = {}
    state: str | None = None
    stored: Mapping[str, TensorEntry] = {}

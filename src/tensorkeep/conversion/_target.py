"""The destination of a conversion: a directory, or one file."""

from __future__ import annotations

import os
import re
from typing import Final

import msgspec

from tensorkeep.checkpoint import refuse_file_name
from tensorkeep.errors import UnsupportedError
from tensorkeep.layout import index_name, parse_size, stem_of_weights, weights_name
from tensorkeep.tensors import check_target
from tensorkeep.transport import split

DEFAULT_BASE: Final = "model"
DEFAULT_SHARD_SIZE: Final = "5GB"

_SUFFIX: Final = ".safetensors"
_NO_LIMIT: Final = 2**62
_find_other_suffix = re.compile(r"\.(?:bin|ckpt|mdl|pickle|pkl|pt|pth|th)(?:\.tar)?$").search
"""Suffixes of other files; a destination with one of these is not meant as a directory."""


class Target(msgspec.Struct, frozen=True):
    """The destination of a conversion.

    Attributes:
        directory: The directory for the files.
        base: The stem of their names.
        variant: Their variant, such as `"fp16"`, or None.
        max_shard_nbytes: Most bytes of tensors in one file.
    """

    directory: str
    base: str
    variant: str | None
    max_shard_nbytes: int

    @property
    def stem(self) -> str:
        """What every file name begins with."""
        return f"{self.base}.{self.variant}" if self.variant else self.base

    @property
    def index(self) -> str:
        """Name of the index, if one is needed."""
        return index_name(self.base, self.variant)

    @property
    def single(self) -> str:
        """Name of the only file, if there is no index."""
        return weights_name(self.base, self.variant)


def target_of(destination: str, base: str, variant: str | None, max_shard_size: int | str) -> Target:
    """Parse a destination and refuse arguments that do not apply to a single file."""
    max_shard_nbytes = parse_size(max_shard_size)
    check_target(destination)
    if not destination.endswith(_SUFFIX) or os.path.isdir(destination):
        _refuse_other_files(destination)
        refuse_file_name(destination)
        return Target(destination, base, variant, max_shard_nbytes)
    directory, name = split(destination)
    stem = stem_of_weights(name)
    if stem is None:
        raise UnsupportedError(
            "the destination has the name of a shard, and readers would look for the other shards",
            path=destination,
            expected="a directory, or a name such as model.safetensors",
            found=name,
        )
    meant_for_directories = {
        "base_name": base != DEFAULT_BASE,
        "output_variant": variant is not None,
        "max_shard_size": max_shard_nbytes != parse_size(DEFAULT_SHARD_SIZE),
    }
    given = [argument for argument, is_given in meant_for_directories.items() if is_given]
    if given:
        raise UnsupportedError(
            "the destination is a single file, and these arguments are for directories",
            path=destination,
            expected=f"a directory, or no {' and no '.join(given)}",
        )
    return Target(directory or os.curdir, stem, None, _NO_LIMIT)


def _refuse_other_files(destination: str) -> None:
    found = _find_other_suffix(destination)
    if not os.path.isdir(destination) and (found or destination == "-" or os.path.isfile(destination)):
        stem = destination[: found.start()] if found else "model"
        raise UnsupportedError(
            "the destination is neither a directory nor a safetensors file",
            path=destination,
            expected=f"one such as {stem or 'model'}{_SUFFIX}",
        )

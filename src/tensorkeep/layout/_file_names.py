"""Names of a checkpoint's files, in the convention of the Hugging Face libraries. Pure.

    model.safetensors                     model.fp16.safetensors
    model-00001-of-00003.safetensors      model.fp16-00001-of-00003.safetensors
    model.safetensors.index.json          model.safetensors.index.fp16.json

`model` is the base, `fp16` the variant; together, `model.fp16`, they are the stem.
"""

from __future__ import annotations

import re
from typing import Final

from tensorkeep.errors import UnsupportedError
from tensorkeep.paths import is_plain_name

_SUFFIX: Final = "safetensors"
_match_index = re.compile(r"(?P<base>[^.].*)\.safetensors\.index(?:\.(?P<variant>[^.]+))?\.json").fullmatch
_match_weights = re.compile(r"(?P<stem>[^.].*)\.safetensors").fullmatch
_match_shard = re.compile(r"[^.].*(?P<number>-[0-9]{5}-of-[0-9]{5})\.safetensors").fullmatch
_ends_like_shard = re.compile(r".*-[0-9]{5}-of-[0-9]{5}").fullmatch


def weights_name(base: str, variant: str | None = None) -> str:
    """Return the file name of a checkpoint that is not sharded."""
    return f"{_stem(base, variant)}.{_SUFFIX}"


def shard_name(base: str, number: int, n_shards: int, variant: str | None = None) -> str:
    """Return the file name of a shard; `number` counts from 1."""
    return f"{_stem(base, variant)}-{number:05d}-of-{n_shards:05d}.{_SUFFIX}"


def blocks_name(file: str) -> str:
    """Return the name of the file with the digests of the blocks of a file."""
    return f"{file}.blocks"


def index_name(base: str, variant: str | None = None) -> str:
    """Return the file name of an index."""
    _stem(base, variant)
    return ".".join([base, _SUFFIX, "index", *([variant] if variant is not None else []), "json"])


def index_names(stem: str) -> tuple[str, ...]:
    """Return the names an index may have: as transformers writes a variant, then as huggingface_hub does."""
    base, dot, variant = stem.rpartition(".")
    return (index_name(base, variant), index_name(stem)) if dot and base else (index_name(stem),)


def stem_of_index(name: str) -> str | None:
    """Return the stem of an index's file name, or None if the name is not that of an index."""
    found = _match_index(name)
    return found and found["base"] + (f".{found['variant']}" if found["variant"] else "")


def stem_of_weights(name: str) -> str | None:
    """Return the stem of an unsharded file's name, or None if the name is not one."""
    found = _match_weights(name)
    return found["stem"] if found and not _match_shard(name) else None


def renamed_shard(file: str, stem: str) -> str:
    """Return the name of a shard, or of an unsharded file, under another stem."""
    number = _match_shard(file)
    if number is None and stem_of_weights(file) is None:
        raise UnsupportedError(
            "the layout names a file that is not a shard",
            expected="names such as model-00001-of-00003.safetensors",
            found=repr(file),
        )
    return f"{stem}{number['number'] if number else ''}.{_SUFFIX}"


def _stem(base: str, variant: str | None) -> str:
    parts = [base] if variant is None else [base, variant]
    for what, part in zip(("base", "variant"), parts, strict=False):
        is_ambiguous = "." in part if what == "variant" else part.startswith(".") or _ends_like_shard(part)
        if not is_plain_name(part) or ".." in part or is_ambiguous:
            raise UnsupportedError(
                f"the {what} is not usable in file names",
                expected="text without separators, such as 'model' or 'fp16'",
                found=repr(part),
            )
    return ".".join(parts)

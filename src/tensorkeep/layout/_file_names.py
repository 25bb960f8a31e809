"""The names of a checkpoint's files, as the Hugging Face libraries give them. Pure.

    model.safetensors                     model.fp16.safetensors
    model-00001-of-00003.safetensors      model.fp16-00001-of-00003.safetensors
    model.safetensors.index.json          model.safetensors.index.fp16.json

`model` is the base, `fp16` the variant.
"""

from __future__ import annotations

import re
from typing import Final

from tensorkeep.errors import UnsupportedError

_SUFFIX: Final = "safetensors"
_match_index = re.compile(r"(?P<base>[^.].*)\.safetensors\.index(?:\.(?P<variant>[^.]+))?\.json").fullmatch
_match_weights = re.compile(r"(?P<stem>[^.].*)\.safetensors").fullmatch
_match_shard = re.compile(r"[^.].*(?P<number>-[0-9]{5}-of-[0-9]{5})\.safetensors").fullmatch
_ends_like_shard = re.compile(r".*-[0-9]{5}-of-[0-9]{5}").fullmatch
_has_drive = re.compile(r".:", re.DOTALL).match


def weights_name(base: str, variant: str | None = None) -> str:
    """Return the name of the one file of a checkpoint that is not sharded."""
    return f"{_stem(base, variant)}.{_SUFFIX}"


def shard_name(base: str, number: int, n_shards: int, variant: str | None = None) -> str:
    """Return the name of one shard."""
    return f"{_stem(base, variant)}-{number:05d}-of-{n_shards:05d}.{_SUFFIX}"


def index_name(base: str, variant: str | None = None) -> str:
    """Return the name of the index of a sharded checkpoint."""
    _stem(base, variant)
    return ".".join([base, _SUFFIX, "index", *([variant] if variant is not None else []), "json"])


def index_names(stem: str) -> tuple[str, ...]:
    """Return the names an index can have: transformers' for a variant, then huggingface_hub's."""
    base, dot, variant = stem.rpartition(".")
    return (index_name(base, variant), index_name(stem)) if dot and base else (index_name(stem),)


def stem_of_index(name: str) -> str | None:
    """Return what the names of an index's checkpoint begin with, the variant included."""
    found = _match_index(name)
    return found and found["base"] + (f".{found['variant']}" if found["variant"] else "")


def stem_of_weights(name: str) -> str | None:
    """Return what the name of an only file begins with, the variant included."""
    found = _match_weights(name)
    return found["stem"] if found and not _match_shard(name) else None


def renamed_shard(file: str, stem: str) -> str:
    """Return the name that a file of one checkpoint has in another."""
    number = _match_shard(file)
    if number is None and stem_of_weights(file) is None:
        raise UnsupportedError(
            "the layout names a file that is no shard",
            expected="names such as model-00001-of-00003.safetensors",
            found=repr(file),
        )
    return f"{stem}{number['number'] if number else ''}.{_SUFFIX}"


def is_plain(name: str) -> bool:
    """Say whether a name is that of a file in the directory itself, on every system."""
    return name.isprintable() and not set(name) & set("/\\:") and name not in {"", ".", ".."}


def is_inside(name: str) -> bool:
    """Say whether a path stays in the directory that it is joined to, on every system."""
    if "\0" in name or "\\" in name or _has_drive(name):
        return False
    return all(part not in {"", ".", ".."} for part in name.split("/"))


def _stem(base: str, variant: str | None) -> str:
    parts = [base] if variant is None else [base, variant]
    for what, part in zip(("base", "variant"), parts, strict=False):
        is_ambiguous = "." in part if what == "variant" else part.startswith(".") or _ends_like_shard(part)
        if not is_plain(part) or ".." in part or is_ambiguous:
            raise UnsupportedError(
                f"the {what} of a checkpoint is part of its file names",
                expected="a text without separators that tells them from others, such as 'model' or 'fp16'",
                found=repr(part),
            )
    return ".".join(parts)

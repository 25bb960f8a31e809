"""Find the pickles for a path: one file, an index and its shards, or all files below a directory."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import Final

import msgspec

from tensorkeep.errors import IntegrityError, SourceMissingError, TensorkeepError, UnsupportedError
from tensorkeep.formats.pickles import PICKLE_SUFFIXES, is_pickled
from tensorkeep.layout import stem_of_index
from tensorkeep.paths import is_plain_name
from tensorkeep.transport import (
    exists,
    is_directory,
    is_remote,
    join,
    list_names,
    open_source,
    split,
    walk,
    without_secrets,
)

_USUAL: Final = "pytorch_model"
_DEEPEST: Final = 3
"""How many levels of folders to search: `iter_0001000/mp_rank_00/model_optim_rng.pt` is two levels down."""

_match_index = re.compile(r"(?P<base>[^.].*)\.bin\.index(?:\.(?P<variant>[^.]+))?\.json").fullmatch
_match_single = re.compile(r"(?P<stem>[^.].*)\.bin").fullmatch
_match_pickled = re.compile(rf"(?P<stem>[^.].*)(?:{'|'.join(map(re.escape, PICKLE_SUFFIXES))})(?:\.tar)?").fullmatch
_ends_like_shard = re.compile(r".*-[0-9]{5}-of-[0-9]{5}").fullmatch
_is_companion = re.compile(
    r"(?:training_args|optimizer|scheduler|scaler|sampler|random_states|rng_state)(?:_[0-9]+)*\.(?:bin|pkl|pt|pth)|.*\.pdopt"
).fullmatch
"""Files that trainers save next to the weights."""


class PickleLocation(msgspec.Struct, frozen=True):
    """The files of one checkpoint.

    Attributes:
        path: The file, the index or the directory.
        directory: The directory of `files`; empty for the current one.
        index: Name of the index, or None if there is none.
        files: Paths below `directory`, separated by `/`; empty with an index, which names the shards.
        is_one: Whether it is a single file, so that names of tensors get no prefix.
    """

    path: str
    directory: str
    index: str | None
    files: tuple[str, ...]
    is_one: bool


def find_pickled(path: str, variant: str | None = None) -> PickleLocation | None:
    """Find the pickles for a path.

    In a directory these are, in order of preference: `pytorch_model.bin` or its index; the only other index; the only
    pickle, apart from files that trainers save next to the weights; all pickles in the directory and below.
    """
    path = without_secrets(path)
    if is_directory(path):
        return _in_directory(path, variant)
    directory, name = split(path)
    if _match_index(name) and exists(path):
        return PickleLocation(path, directory, name, (), is_one=False)
    if (is_remote(path) or os.path.isfile(path)) and _is_pickled(path):
        return PickleLocation(path, directory, None, (name,), is_one=True)
    return None


def _in_directory(directory: str, variant: str | None) -> PickleLocation | None:
    listed = list_names(directory)
    names = _usual_names(directory, variant) if listed is None else [name for name in listed if is_plain_name(name)]
    if any(name.endswith(".safetensors") or stem_of_index(name) for name in names):
        return None
    found = _at(directory, names, _USUAL + (f".{variant}" if variant else ""))
    return found or _by_an_index(directory, names, variant) or _by_content(directory, names, variant)


def _usual_names(directory: str, variant: str | None) -> list[str]:
    """Return the first usual name that exists, for servers that cannot list a directory.

    A single file beside its index is returned too: it is unclear which one to open.
    """
    dot = f".{variant}" if variant else ""
    usual = (
        f"model.safetensors.index{dot}.json",
        f"model{dot}.safetensors",
        f"{_USUAL}.bin.index{dot}.json",
        f"{_USUAL}{dot}.bin",
    )
    first = next((name for name in usual if exists(join(directory, name))), None)
    beside = usual[3] if first == usual[2] and exists(join(directory, usual[3])) else None
    return [name for name in (first, beside) if name is not None]


def _at(directory: str, names: list[str], stem: str) -> PickleLocation | None:
    index = next((name for name in names if stem_of_pickle_index(name) == stem), None)
    single = f"{stem}.bin"
    if index is not None and single in names:
        raise IntegrityError(
            f"{single} is next to {index}: it is unclear which one to open",
            path=directory,
            expected="one of them",
            found="both",
            hint="Open the one that you want by its own path, and move the other away",
        )
    if index is not None:
        return PickleLocation(join(directory, index), directory, index, (), is_one=False)
    return _one(directory, single) if single in names and _is_pickled(join(directory, single)) else None


def _one(directory: str, name: str) -> PickleLocation:
    return PickleLocation(join(directory, name), directory, None, (name,), is_one=True)


def _by_an_index(directory: str, names: list[str], variant: str | None) -> PickleLocation | None:
    stems = [stem for name in names if (stem := stem_of_pickle_index(name)) and _is_variant(stem, variant)]
    if len(stems) > 1:
        raise UnsupportedError(
            "several checkpoints in the directory",
            path=directory,
            found=", ".join(f"{stem}.bin" for stem in stems[:10]),
            hint="Open one of them by the path of its index, or with variant= (--variant)",
        )
    return _at(directory, names, stems[0]) if stems else None


def _by_content(directory: str, names: list[str], variant: str | None) -> PickleLocation | None:
    here = [name for name in names if _could_be_pickled(name) and _is_pickled(join(directory, name))]
    if variant is not None:
        here = [name for name in here if (found := _match_single(name)) and _is_variant(found["stem"], variant)]
    here = [name for name in here if not _is_companion(name)] or here
    shard = next((name for name in here if (found := _match_pickled(name)) and _ends_like_shard(found["stem"])), None)
    if shard is not None:
        raise SourceMissingError(
            "the index of the shards is missing",
            path=directory,
            expected=f"one such as {_USUAL}.bin.index.json",
            found=shard,
            hint="Get the index again, or open one of the shards by its own path",
        )
    files = here if variant is not None else here + list(_below(directory))
    if len(files) == 1 and files == here:
        return _one(directory, files[0])
    return PickleLocation(directory, directory, None, tuple(files), is_one=False) if files else None


def _below(directory: str) -> Iterator[str]:
    """Yield the pickles in folders of a directory, except files that trainers save next to the weights."""
    for folder, folders, names in walk(directory):
        relative = os.path.relpath(folder, directory)
        depth = 0 if relative == os.curdir else relative.count(os.sep) + 1
        folders[:] = sorted(name for name in folders if not name.startswith(".")) if depth < _DEEPEST else []
        for name in sorted(names) if depth else ():
            if _could_be_pickled(name) and not _is_companion(name) and _is_pickled(os.path.join(folder, name)):
                yield f"{relative.replace(os.sep, '/')}/{name}"


def _could_be_pickled(name: str) -> bool:
    return is_plain_name(name) and _match_pickled(name) is not None


def _is_pickled(path: str) -> bool:
    """Whether a file's content looks like something that `read_pickle` can read."""
    try:
        source = open_source(path, backend="pread")
    except TensorkeepError:
        return False
    try:
        return is_pickled(source)
    finally:
        source.close()


def pickle_index_names(stem: str) -> tuple[str, ...]:
    """Return the possible names of an index; the form with a variant comes first."""
    base, dot, variant = stem.rpartition(".")
    return (*([f"{base}.bin.index.{variant}.json"] if dot and base else []), f"{stem}.bin.index.json")


def stem_of_pickle_index(name: str) -> str | None:
    """Return the stem of an index's shards, variant included; None if the name is not an index."""
    found = _match_index(name)
    return found and found["base"] + (f".{found['variant']}" if found["variant"] else "")


def _is_variant(stem: str, variant: str | None) -> bool:
    return variant is None or stem.endswith(f".{variant}")

"""The shards of a model: files `model-00001-of-00003.gguf`, whose headers have their number and count. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from tensorkeep.errors import FormatError, IntegrityError
from tensorkeep.formats._contents import TensorPlace
from tensorkeep.formats.gguf._read import GgufContents
from tensorkeep.formats.gguf._types import UnknownType
from tensorkeep.transport import ByteSource

_NUMBER: Final = "split.no"
_COUNT: Final = "split.count"
_N_TENSORS: Final = "split.tensors.count"
_SPLIT_KEYS: Final = (_NUMBER, _COUNT, _N_TENSORS)

_HINT: Final = "Are some shards of another model? Get all of them again"

_match_shard = re.compile(r"(?P<stem>.+)-(?P<number>[0-9]{5})-of-(?P<count>[0-9]{5})\.gguf", re.IGNORECASE).fullmatch


def stem_of_shard(name: str) -> str | None:
    """Return what the names of all shards begin with; None if a file is not named like a shard."""
    found = _match_shard(name)
    return found and found["stem"]


def shard_names(name: str) -> list[str]:
    """Return the names of all shards, given one of them; empty if it is not named like a shard."""
    found = _match_shard(name)
    if found is None:
        return []
    return [f"{found['stem']}-{number:05}-of-{found['count']}.gguf" for number in range(1, int(found["count"]) + 1)]


def n_shards(contents: GgufContents) -> int:
    """Return how many files the model is in, as its header says."""
    count = contents.attributes.get(_COUNT, 1)
    if type(count) is not int or count < 0:
        raise FormatError(f"the value of {_COUNT} is not a number of files", found=f"{count!r:.100}")
    return max(count, 1)


def join_shards(shards: Mapping[str, tuple[GgufContents, ByteSource]]) -> GgufContents:
    """Return shards as one file whose tensors are in several sources, refusing shards that do not belong together."""
    values: dict[str, Any] = {}
    types: dict[str, Any] = {}
    tensors: dict[str, TensorPlace] = {}
    unknowns: dict[str, UnknownType] = {}
    owners: dict[str, str] = {}
    for number, (file, (contents, source)) in enumerate(shards.items()):
        _refuse_other(file, contents, _NUMBER, number)
        _refuse_other(file, contents, _COUNT, len(shards))
        for key, value in contents.attributes.items():
            if values.setdefault(key, value) != value and key != _NUMBER:
                raise IntegrityError(
                    f"the key {key!r:.100} has two values",
                    expected=f"{values[key]!r:.100}, as in the other shards",
                    found=f"{value!r:.100} in {file}",
                    hint=_HINT,
                )
        types |= contents.types
        for name in (*contents.tensors, *contents.unknowns):
            if name in owners:
                raise IntegrityError(f"tensor `{name}` is in {owners[name]} and in {file}", tensor=name)
            owners[name] = file
        tensors |= {name: msgspec.structs.replace(place, source=source) for name, place in contents.tensors.items()}
        unknowns |= contents.unknowns
    _refuse_lost(values, len(owners))
    first = next(iter(shards.values()))[0]
    return msgspec.structs.replace(
        first,
        tensors=tensors,
        unknowns=unknowns,
        attributes={key: value for key, value in values.items() if key not in _SPLIT_KEYS},
        types={key: type_ for key, type_ in types.items() if key not in _SPLIT_KEYS},
        sources={file: source for file, (_, source) in shards.items()},
    )


def _refuse_other(file: str, contents: GgufContents, key: str, expected: int) -> None:
    found = contents.attributes.get(key)
    if found != expected:
        raise IntegrityError(
            f"the shards do not belong together: {key} of {file} is another",
            expected=str(expected),
            found=f"{found!r:.100}",
            hint=_HINT,
        )


def _refuse_lost(values: Mapping[str, Any], n_tensors: int) -> None:
    n_declared = values.get(_N_TENSORS, n_tensors)
    if n_declared != n_tensors:
        raise IntegrityError(
            "the shards do not hold all tensors of the model",
            expected=f"{n_declared!r:.100} tensors ({_N_TENSORS})",
            found=f"{n_tensors:,}",
            hint=_HINT,
        )

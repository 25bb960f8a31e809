"""Compares the verdicts of tensorkeep and the reference (safetensors 0.8.0), and lists where they may differ.

`DIFFERENCES` is the complete list. Any other file that only one of them accepts is a bug.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import safetensors

from tensorkeep.errors import HeaderError
from tensorkeep.formats.safetensors import Header, read_header
from tensorkeep.transport import MemorySource

__all__ = ["DIFFERENCES", "Verdict", "judge", "reference_dtypes"]

DIFFERENCES = {
    "unknown dtype": "a file of a newer version can be listed and copied; loading its tensors is refused",
    "-0": "JSON's -0 is the integer 0; the reference's parser takes it for a float",
    "unread field": "the reference's parser bounds numbers (doubles) and depth (128) in fields that nobody reads",
    "repeated key": "two readers could take different ones for the true one, so none is",
    "entry as list": "a field order that no document fixes; no writer uses it",
    "dtype as object": "a spelling of enumerations that only the reference's parser knows; no writer uses it",
    "vast extent": "extents over 2^63 - 1, which only a tensor without elements can have, fit no array library",
    "vast shape": "more than 1,024 dimensions; no array library has more than 64",
}
"""Each difference, and its reason. The first three are accepted here and refused by the reference; the others not."""

_deserialize: Callable[[bytes], list[tuple[str, dict[str, Any]]]] = safetensors.deserialize
_MAX_EXTENT = 2**63 - 1
_MAX_DIGITS = 20
"""Digits that are read as a number; longer ones, which Python refuses beyond 4300, stay text."""


def _number(digits: str) -> int | str:
    return int(digits) if len(digits) <= _MAX_DIGITS else digits


class Verdict(NamedTuple):
    """The outcome for one file.

    Attributes:
        accepted: Whether tensorkeep accepts it.
        difference: The name of the difference from the reference, or None if they agree.
        wrong: The bug, or None: an unlisted difference, or another meaning of the same bytes.
    """

    accepted: bool
    difference: str | None = None
    wrong: str | None = None


def judge(file: bytes) -> Verdict:
    """Compare the verdicts for a file.

    Args:
        file: Its bytes.

    Returns:
        The outcome. Errors other than `HeaderError` propagate: they are bugs.
    """
    ours: Header | None = None
    refusal = ""
    try:
        ours = read_header(MemorySource(file), prefix="")
    except HeaderError as error:
        refusal = str(error)
    try:
        theirs = dict(_deserialize(file))
    except safetensors.SafetensorError as error:
        if ours is None:
            return Verdict(accepted=False)
        return _accepted_only_here(file, str(error))
    if ours is None:
        return _refused_only_here(file, refusal)
    return Verdict(accepted=True, wrong=_other_meaning(file, ours, theirs))


def _header_text(file: bytes) -> str:
    return file[8 : 8 + int.from_bytes(file[:8], "little")].decode()


def _other_meaning(file: bytes, ours: Header, theirs: dict[str, Any]) -> str | None:
    """Compare with the reference, and with a plain parse of the JSON, which also gives offsets and metadata."""
    plain = json.loads(_header_text(file), parse_int=_number)
    metadata = plain.pop("__metadata__", None)
    if metadata != ours.metadata:
        return f"metadata {ours.metadata}, not {metadata}"
    places = {
        name: (entry.dtype, list(entry.shape), list(entry.data_offsets)) for name, entry in ours.entries.items()
    }
    if places != {name: (item["dtype"], item["shape"], item["data_offsets"]) for name, item in plain.items()}:
        return f"entries {places}, not {plain}"
    seen = {name: (item["dtype"], item["shape"], len(item["data"])) for name, item in theirs.items()}
    if seen != {name: (dtype, shape, stop - start) for name, (dtype, shape, (start, stop)) in places.items()}:
        return f"entries {places}; the reference has {seen}"
    starts = [entry.data_offsets for entry in ours.entries.values()]
    return None if starts == sorted(starts) else "entries that are not in the order of the bytes"


_ONLY_HERE = (
    ("unknown variant", "unknown dtype"),
    ("floating point `-0.0`", "-0"),
    ("number out of range", "unread field"),
    ("recursion limit exceeded", "unread field"),
)


def _accepted_only_here(file: bytes, refusal: str) -> Verdict:
    difference = next((name for words, name in _ONLY_HERE if words in refusal), None)
    if difference is None:
        return Verdict(accepted=True, wrong=f"accepted; the reference says: {refusal}")
    try:
        _deserialize(_without_differences(file))
    except safetensors.SafetensorError as error:
        return Verdict(accepted=True, wrong=f"accepted; without {difference} the reference says: {error}")
    return Verdict(accepted=True, difference=difference)


def _without_differences(file: bytes) -> bytes:
    """Rewrite the file's header so that the reference accepts it: known dtypes, plain numbers, no unused fields."""
    document = json.loads(_header_text(file), parse_int=_number, parse_float=str)
    known = set(reference_dtypes())
    for name, item in document.items():
        if name == "__metadata__":
            continue
        start, stop = item["data_offsets"]
        plain = {field: item[field] for field in ("dtype", "shape", "data_offsets")}
        if item["dtype"] not in known:
            plain |= {"dtype": "U8", "shape": [stop - start]}
        document[name] = plain
    text = json.dumps(document).encode()
    return struct.pack("<Q", len(text)) + text + file[8 + int.from_bytes(file[:8], "little") :]


@cache
def reference_dtypes() -> tuple[str, ...]:
    """Return the dtype names that the reference lists, in its order."""
    text = b'{"a":{"dtype":"?","shape":[],"data_offsets":[0,0]}}'
    try:
        _deserialize(struct.pack("<Q", len(text)) + text)
    except safetensors.SafetensorError as error:
        names = str(error).partition("expected one of ")[2].partition(" at line")[0]
        return tuple(name.strip("`") for name in names.split(", "))
    raise AssertionError("the reference accepts the dtype `?`")


class _Object(list[tuple[str, Any]]):
    """A JSON object with all its keys."""


def _refused_only_here(file: bytes, refusal: str) -> Verdict:
    document = json.loads(_header_text(file), object_pairs_hook=_Object, parse_int=_number)
    difference = None
    if _has_repeated_key(document):
        difference = "repeated key" if "duplicate" in refusal else None
    for name, item in document:
        if name != "__metadata__":
            difference = _odd_spelling(item) or difference
    if difference is None:
        return Verdict(accepted=False, wrong=f"refused, but the reference accepts it: {refusal}")
    return Verdict(accepted=False, difference=difference)


def _odd_spelling(item: Any) -> str | None:
    """Name the difference in an entry that the reference accepts."""
    if not isinstance(item, _Object):
        return "entry as list"
    if any(isinstance(value, _Object) for key, value in item if key == "dtype"):
        return "dtype as object"
    if any(extent > _MAX_EXTENT for key, value in item if key == "shape" for extent in value):
        return "vast extent"
    return "vast shape" if any(len(value) > 1024 for key, value in item if key == "shape") else None


def _has_repeated_key(value: Any) -> bool:
    if isinstance(value, _Object):
        keys = [key for key, _ in value]
        return len(set(keys)) < len(keys) or any(_has_repeated_key(item) for _, item in value)
    return isinstance(value, list) and any(_has_repeated_key(item) for item in value)

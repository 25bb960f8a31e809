"""The rules of a store, recorded in its directory: `tensorkeep-store.json`.

    {"version":1,"keep_last":3,"keep_best":1,"keep_every":null,"monitor":"valid_loss","mode":"min"}

A version that has other rules writes another number, and an unknown member is an error: code that knows only some of
the rules would remove steps that the others keep.
"""

from __future__ import annotations

import os
from typing import Annotated, Any, Final, Literal

import msgspec

from tensorkeep.errors import FormatError, SourceMissingError, UnsupportedError
from tensorkeep.store._retention import Mode, Retention
from tensorkeep.transport import ByteRange, open_source, publish

RULES_NAME: Final = "tensorkeep-store.json"

_VERSION: Final = 1
_MAX_NBYTES: Final = 2**16


class _Version(msgspec.Struct):
    """What every version can read of the file."""

    version: int


class _Text(msgspec.Struct, forbid_unknown_fields=True):
    """The file as it is written."""

    version: Literal[1]
    keep_last: Annotated[int, msgspec.Meta(ge=1)] | None
    keep_best: Annotated[int, msgspec.Meta(ge=0)] | None
    keep_every: Annotated[int, msgspec.Meta(ge=1)] | None
    monitor: str
    mode: Mode


def read_rules(root: str) -> Retention | None:
    """Return the recorded rules, or None if the store has none."""
    path = os.path.join(root, RULES_NAME)
    try:
        source = open_source(path, backend="pread")
    except SourceMissingError:
        return None
    text = bytes(source.read(ByteRange(0, min(source.nbytes, _MAX_NBYTES))))
    try:
        if msgspec.json.decode(text, type=_Version).version > _VERSION:
            raise UnsupportedError("the rules of the store need a later version of tensorkeep", path=path)
        members = msgspec.structs.asdict(msgspec.json.decode(text, type=_Text))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise FormatError(
            "the rules of the store are damaged",
            path=path,
            found=str(error),
            hint="Open the store with its rules and prune=True to record them again",
        ) from None
    del members["version"]
    return Retention(**members)


def write_rules(root: str, rules: Retention, *, durable: bool) -> None:
    """Record rules, in place of older ones."""
    members: dict[str, Any] = {"version": _VERSION, **msgspec.structs.asdict(rules)}
    with publish(os.path.join(root, RULES_NAME), durable=durable) as sink:
        sink.write([msgspec.json.encode(members) + b"\n"])

"""The rules of a store, recorded beside its steps: `tensorkeep-store.json`.

    {"version":1,"keep_last":3,"keep_best":1,"keep_every":null,"monitor":"valid_loss","mode":"min"}

A version that has other rules writes another number, and an unknown member is an error: code that knows only some of
the rules would remove steps that the others keep.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

import msgspec

from tensorkeep.errors import FormatError, UnsupportedError
from tensorkeep.store._retention import Mode, Retention
from tensorkeep.store.places import MAX_RULES_NBYTES, RULES_NAME, Place
from tensorkeep.transport import join

_VERSION: Final = 1


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


def read_rules(place: Place) -> Retention | None:
    """Return the recorded rules, or None if the store has none."""
    text = place.read_note(RULES_NAME, MAX_RULES_NBYTES)
    if text is None:
        return None
    path = join(place.root, RULES_NAME)
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


def write_rules(place: Place, rules: Retention, *, durable: bool) -> None:
    """Record rules, in place of older ones."""
    members: dict[str, Any] = {"version": _VERSION, **msgspec.structs.asdict(rules)}
    place.write_note(RULES_NAME, msgspec.json.encode(members) + b"\n", durable=durable)

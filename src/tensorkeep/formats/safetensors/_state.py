"""Metadata of a whole training state: the tree that contains the tensors, and which tensors share memory.

It is one JSON text under the metadata key `tensorkeep.state`, so every reader of the format still reads every tensor:

    {"state":1,"aliases":{"b":{"of":"a"}},"storages":["c#storage"],"library":"torch","tree":["dict","a",{},"b",{}]}

`aliases` are views of other tensors, which are stored once. `storages` are tensors that only hold memory for views.
`tree` is the nested value; `tensorkeep.state` defines its nodes. docs/format.md specifies all of it.
"""

from __future__ import annotations

import json
from typing import Annotated, Any, Final

import msgspec

from tensorkeep.errors import FormatError, UnsupportedError
from tensorkeep.limits import MAX_I64, MAX_NDIM

STATE_KEY: Final = "tensorkeep.state"
"""The metadata key."""

_VERSION: Final = 1
STATE_SIGNATURE: Final = '{"state":'
"""The start of its text."""

NO_TREE: Final = msgspec.Raw(b"")

_Count = Annotated[int, msgspec.Meta(ge=0, le=MAX_I64)]
_Counts = Annotated[tuple[_Count, ...], msgspec.Meta(max_length=MAX_NDIM)]


class Alias(msgspec.Struct, frozen=True, omit_defaults=True):
    """A tensor that is a view of another.

    Attributes:
        of: Name of the owner, the tensor whose bytes it shares.
        offset: Bytes from the owner's first element to its own.
        dtype: Name in the format; None for the owner's dtype.
        shape: Elements along each dimension; None for the owner's shape.
        strides: Elements from one entry of each dimension to the next; None for C order.
        is_conj: Whether its values are the conjugates of the stored ones.
        is_neg: Whether its values are the stored ones negated.
    """

    of: str
    offset: _Count = 0
    dtype: str | None = None
    shape: _Counts | None = None
    strides: _Counts | None = None
    is_conj: bool = False
    is_neg: bool = False

    @property
    def is_whole(self) -> bool:
        """Whether it is the whole owner under another name."""
        return self == Alias(self.of)


class State(msgspec.Struct, frozen=True, omit_defaults=True):
    """The description of a state, besides its tensors.

    Attributes:
        state: Version of this text.
        aliases: Name to description of the view.
        storages: Names of tensors that were not in the state: they hold the memory that aliases share.
        library: The array library that tensors came from, unless the tree says otherwise; None if unknown.
        tree: JSON text of the nested value; empty if there is none.
    """

    state: int = _VERSION
    aliases: dict[str, Alias] = {}
    storages: tuple[str, ...] = ()
    library: str | None = None
    tree: msgspec.Raw = NO_TREE

    def nodes(self) -> Any:
        """Return the tree as JSON values."""
        try:
            return _decoded(bytes(self.tree))
        except (ValueError, RecursionError, msgspec.MsgspecError) as error:
            raise FormatError("cannot read the tree of the state", found=str(error)) from None


class _Version(msgspec.Struct, frozen=True):
    state: int


_decode_version = msgspec.json.Decoder(_Version).decode
_decode_state = msgspec.json.Decoder(State).decode


def emit_state(state: State) -> str:
    """Encode the description of a state."""
    members = {name: getattr(state, name) for name in State.__struct_fields__}
    return msgspec.json.encode({
        name: member for name, member in members.items() if member and member is not NO_TREE
    }).decode()


def _decoded(tree: bytes) -> Any:
    nodes = msgspec.json.decode(tree)
    if tree.count(b"{") != tree.count(b"{}"):  # otherwise all objects are empty
        _check_members(tree, msgspec.json.encode(nodes))
    return nodes


def _check_members(text: bytes, emitted: bytes) -> None:
    """Refuse objects with duplicate members: readers differ on which one they take.

    A duplicate changes the number of colons compared with the text encoded again, unless colons are escaped. Only in
    these cases is the text parsed a second time, slowly.
    """
    if text.count(b":") != emitted.count(b":") or b"\\u003" in text:
        json.loads(text, object_pairs_hook=_checked_members, parse_int=len, parse_float=len)


def _checked_members(pairs: list[tuple[str, Any]]) -> None:
    names = [name for name, _ in pairs]
    if len(set(names)) < len(names):
        twice = next(name for place, name in enumerate(names) if name in names[:place])
        raise ValueError(f"duplicate member {twice!r:.100} in one object")


def parse_state(text: str) -> State:
    """Read the description of a state."""
    try:
        version = _decode_version(text).state
        if version == _VERSION:
            state = _decode_state(text)
            _check_members(text.encode(), emit_state(state).encode())
            return state
    except (ValueError, RecursionError, msgspec.MsgspecError) as error:
        raise FormatError("cannot read the description of the state", found=f"{error}") from None
    raise UnsupportedError(
        "the description of the state has a later version",
        expected=f"version {_VERSION}",
        found=f"version {version}",
        hint="Update tensorkeep; each tensor of the file can be read by its name",
    )

"""Flax's files of MessagePack: nested data with lazy tensors, in one file or in shards with an index.

- `_contents`: where the tensors of a file are.
- `_nested`: the nested value as lazy tensors, as loaded ones, and as data for a conversion.
- `_file`: `MsgpackFile`, one open file.
- `_set`: `MsgpackSet`, an index and its shards.
- `_kind`: the record of this kind.
"""

from tensorkeep.kinds.msgpack._file import MsgpackFile
from tensorkeep.kinds.msgpack._kind import MSGPACK
from tensorkeep.kinds.msgpack._set import MsgpackSet

__all__ = [
    "MSGPACK",
    "MsgpackFile",
    "MsgpackSet",
]

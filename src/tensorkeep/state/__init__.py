"""Trees of data as JSON values and named tensors, and back, exactly. Pure: knows no file and no array library.

- `_values`: `Encoded`, a tree taken apart; `NamedData`, an object whose class nobody passed.
- `_scalars`: texts, numbers, dates and the like, and their nodes.
- `_keys`: keys in dotted names, and which of them a dict can hold in good time.
- `_classes`: dataclasses, members of enums and namedtuples.
- `_refusals`: what to say of a value that is no data.
- `_encode`: a tree to nodes.
- `_nodes`: how nodes are built.
- `_names`: the tensors of a tree by their names, and the same tree with other names.
- `_select`: the nodes of a part of a tree.
- `_decode`: nodes to a tree.
- `_plain`: what a tree holds besides tensors, under dotted names.
- `_described`: any node on one line, for people.
"""

from tensorkeep.state._classes import Classes, classes_by_name
from tensorkeep.state._decode import decode_tree
from tensorkeep.state._described import described
from tensorkeep.state._encode import encode_tree
from tensorkeep.state._keys import joined, key_text
from tensorkeep.state._names import part_libraries, renamed, tensor_names
from tensorkeep.state._nodes import FIRST_ITEM, FIRST_KEY, NAMED
from tensorkeep.state._plain import container_paths, parts_of, plain_values, read_tree
from tensorkeep.state._select import selected
from tensorkeep.state._values import Encoded, NamedData, Node, NodeMembers

__all__ = [
    "FIRST_ITEM",
    "FIRST_KEY",
    "NAMED",
    "Classes",
    "Encoded",
    "NamedData",
    "Node",
    "NodeMembers",
    "classes_by_name",
    "container_paths",
    "decode_tree",
    "described",
    "encode_tree",
    "joined",
    "key_text",
    "part_libraries",
    "parts_of",
    "plain_values",
    "read_tree",
    "renamed",
    "selected",
    "tensor_names",
]

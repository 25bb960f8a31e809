"""Nested data as one JSON value and named tensors, and back, exactly. Pure: knows no file and no array library.

The nested data is called a tree; the JSON value for each value in it is called a node.

- `_values`: `Encoded`, an encoded tree; `NamedData`, an object whose class was not passed.
- `_nodes`: the structure of nodes.
- `_scalars`: text, numbers, dates and the like, and their nodes.
- `_keys`: keys in dotted names, and a guard against keys that make a dict slow.
- `_classes`: dataclasses, enum members and namedtuples.
- `_refusals`: errors for values that are not data.
- `_encode`: a tree to nodes.
- `_decode`: nodes to a tree.
- `_names`: the tensors of a tree by name, and the same tree with other names.
- `_select`: the nodes of a part of a tree.
- `_plain`: the values of a tree that are not tensors, by dotted name.
- `_described`: any node as one line of text.
"""

from tensorkeep.state._classes import Classes, classes_by_name, rebuilt
from tensorkeep.state._decode import decode_tree
from tensorkeep.state._described import described
from tensorkeep.state._encode import encode_tree
from tensorkeep.state._keys import joined, key_text, text_of_key, words_for
from tensorkeep.state._names import part_libraries, renamed, tensor_names
from tensorkeep.state._nodes import FIRST_ITEM, FIRST_KEY, NAMED
from tensorkeep.state._plain import container_paths, parts_of, path_of_most, plain_values, read_tree
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
    "path_of_most",
    "plain_values",
    "read_tree",
    "rebuilt",
    "renamed",
    "selected",
    "tensor_names",
    "text_of_key",
    "words_for",
]

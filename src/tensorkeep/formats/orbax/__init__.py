"""Orbax checkpoints: what their JSON files say. The arrays are in `zarr/`, mostly in a database (`ocdbt/`). Pure.

- `_nodes`: the tree as data: containers, and leaves that are arrays or text.
- `_tree`: `_METADATA`: the tree, with or without the types of its containers.
- `_step`: `_CHECKPOINT_METADATA`: whether a checkpoint was finished, and what else was saved with it.
"""

from tensorkeep.formats.orbax._nodes import Leaf, NamedTupleNode, leaves_of
from tensorkeep.formats.orbax._step import Step, parse_step
from tensorkeep.formats.orbax._tree import SavedTree, parse_json, parse_tree, parse_value

__all__ = [
    "Leaf",
    "NamedTupleNode",
    "SavedTree",
    "Step",
    "leaves_of",
    "parse_json",
    "parse_step",
    "parse_tree",
    "parse_value",
]

"""Keras's weights: HDF5 files in which each layer has a folder, alone, in shards, or in an archive with the model.

The model itself, a text that names classes and may hold code, is never built.

- `_names`: names of tensors, in which layers are called as Keras shows them.
- `_weights`: `parse_weights`, `search_weights` and `parse_shards`: HDF5 files as Keras writes them, and any others.
- `_written`: `write_as`, the way back from names to paths.
- `_archive`: `.keras`: an archive of the weights and the model.
- `_shard_index`: `.weights.json`: the shards in which the variables of each layer are.
"""

from tensorkeep.formats.keras._archive import ModelArchive, is_keras_archive, read_model_archive
from tensorkeep.formats.keras._shard_index import ShardIndex, parse_shard_index
from tensorkeep.formats.keras._weights import parse_shards, parse_weights, search_weights
from tensorkeep.formats.keras._written import Written, write_as

__all__ = [
    "ModelArchive",
    "ShardIndex",
    "Written",
    "is_keras_archive",
    "parse_shard_index",
    "parse_shards",
    "parse_weights",
    "read_model_archive",
    "search_weights",
    "write_as",
]

"""Leaves of pytrees: how they are saved and restored, what is known of them, and where they were.

- `_args`: how one leaf is saved or restored.
- `_shardings`: the shardings that arrays were saved with.
- `_described`: what a checkpoint holds: `TreeMetadata` and `ScalarMetadata`.
"""

from tensorkeep.integrations.orbax.leaves._args import ArrayRestoreArgs, RestoreArgs, SaveArgs
from tensorkeep.integrations.orbax.leaves._described import as_template, described_leaf, tree_metadata
from tensorkeep.integrations.orbax.leaves._shardings import OF_ARRAYS, SavedSharding, SavedShardings, saved_shardings

__all__ = [
    "OF_ARRAYS",
    "ArrayRestoreArgs",
    "RestoreArgs",
    "SaveArgs",
    "SavedSharding",
    "SavedShardings",
    "as_template",
    "described_leaf",
    "saved_shardings",
    "tree_metadata",
]

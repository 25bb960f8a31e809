"""Publish a checkpoint: to a branch on the Hugging Face Hub in one commit, or to a directory in a store.

- `_local_files`: files of a directory, without links out of it and secrets.
- `_package`: the files of a checkpoint that are published, and what they must be.
- `_signatures`: what signatures cover, and which are stale.
- `_hub_address`: the repository, branch and folder that a URL of the Hub means. Pure.
- `_hub_errors`: what goes wrong with the Hub, as errors of ours.
- `_hub_repository`: a branch on the Hub: what it holds, uploads and commits.
- `_hub_limits`: what the Hub advises against. Pure.
- `_unchanged`: files that are there already.
- `_pushed`: the result.
- `_to_hub`: a push to the Hub.
- `_store_plan`: which files a push to a store sends, by which names.
- `_to_store`: a push to a store.
- `_push`: `push`, to either.
"""

from tensorkeep.publishing._hub_limits import HubLimitWarning
from tensorkeep.publishing._push import push
from tensorkeep.publishing._pushed import Push

__all__ = [
    "HubLimitWarning",
    "Push",
    "push",
]

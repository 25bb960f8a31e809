"""Commands that bring checkpoints from and to other machines.

- `_fetch`: download a whole checkpoint.
- `_push`: publish a checkpoint on the Hub or in a bucket.
- `_serve`: serve a directory over HTTP.
"""

from tensorkeep.cli.commands.sharing._fetch import fetch
from tensorkeep.cli.commands.sharing._push import push
from tensorkeep.cli.commands.sharing._serve import serve

__all__ = [
    "fetch",
    "push",
    "serve",
]

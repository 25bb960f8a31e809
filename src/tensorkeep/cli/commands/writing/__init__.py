"""Commands that write checkpoints.

- `_convert`: a checkpoint of any kind to safetensors.
- `_export`: a checkpoint of any kind to another format.
- `_reshard`: a checkpoint in other shards.
- `_join`: several checkpoints in one.
- `_edit`: metadata and names, in place.
- `_add_block_digests`: block digests, beside the shards.
- `_patch`: what turns one checkpoint into another.
"""

from tensorkeep.cli.commands.writing._add_block_digests import add_block_digests
from tensorkeep.cli.commands.writing._convert import convert
from tensorkeep.cli.commands.writing._edit import edit
from tensorkeep.cli.commands.writing._export import export
from tensorkeep.cli.commands.writing._join import join
from tensorkeep.cli.commands.writing._patch import patch
from tensorkeep.cli.commands.writing._reshard import reshard

__all__ = [
    "add_block_digests",
    "convert",
    "edit",
    "export",
    "join",
    "patch",
    "reshard",
]

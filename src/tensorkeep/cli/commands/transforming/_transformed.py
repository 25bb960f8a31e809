"""What all commands that transform a model do."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import tensorkeep
from tensorkeep.cli.inputs import Saving, keys_of, size_of
from tensorkeep.cli.reports import read_written
from tensorkeep.cli.terminal import Writing, show_result

if TYPE_CHECKING:
    from tensorkeep.tensors import LazyTensors
    from tensorkeep.transforms import ConfigChange


def write_transformed(
    source: str, change: Callable[[LazyTensors], LazyTensors], saving: Saving, config: ConfigChange | None = None
) -> None:
    """Write what a function makes of a checkpoint, and report it."""
    encrypt = saving.encryption.encryption()
    write = partial(
        tensorkeep.transforms.rewrite,
        source,
        saving.output,
        change,
        config=config,
        max_shard_size=size_of(saving.max_shard_size),
        sha256=saving.sha256,
        key=saving.key.keys(),
        encrypt=encrypt,
    )
    writing = Writing(saving.output, force=saving.force, asks=not saving.as_json)
    has_config = writing.run_shown("writing", write)
    written = read_written(saving.output, None, writing.seconds, writing.replaced, keys_of(encrypt))
    show_result(written.with_config(has_config) if config else written, as_json=saving.as_json)

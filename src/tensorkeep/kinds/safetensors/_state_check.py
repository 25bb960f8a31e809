"""What files say of a state, held against the tensors that they have."""

from __future__ import annotations

from collections.abc import Mapping

from tensorkeep.errors import TensorkeepError, UnsupportedError
from tensorkeep.formats.safetensors import Alias
from tensorkeep.kinds._findings import Finding
from tensorkeep.kinds._options import OpenOptions
from tensorkeep.kinds.safetensors._checkpoint import Checkpoint
from tensorkeep.kinds.safetensors._consistent_read import Reading
from tensorkeep.kinds.safetensors._saved import SavedTensors


def check_state(reading: Reading) -> tuple[Mapping[str, Alias], list[Finding]]:
    """Check that every tensor that shares memory lies in its file, and that the tree can be read."""
    saved = _saved(reading)
    aliases: Mapping[str, Alias] = {}
    try:
        if saved is not None:
            aliases = saved.aliases
            for name in aliases:
                saved[name]
            _ = saved.tree if saved.has_tree else None
    except UnsupportedError:  # a later version knows what it means
        pass
    except TensorkeepError as error:
        name = next(iter(reading.files))
        return aliases, [
            Finding("state", error.message, name, error.tensor, expected=error.expected, found=error.found)
        ]
    return aliases, []


def _saved(reading: Reading) -> SavedTensors | None:
    if reading.examination is None:
        return next(iter(reading.files.values()))
    if reading.location is None or any(finding.is_damage for finding in reading.findings):
        return None
    return Checkpoint(reading.location, reading.examination, OpenOptions())

"""A small checkpoint, keys, and what changes in it: for tests of signatures."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

import tensorkeep


def save_checkpoint(directory: Path, *, sha256: bool = False) -> Path:
    """Save three shards and two other files."""
    state = {f"w{i}": np.full((8, 125), i, np.float32) for i in range(6)}
    tensorkeep.save_checkpoint(state, directory, max_shard_size="8KB", sha256=sha256)
    (directory / "config.json").write_text("{}")
    (directory / "code").mkdir(exist_ok=True)
    (directory / "code" / "modeling.py").write_text("pass")
    return directory


def _flip(path: Path, at: int) -> None:
    content = bytearray(path.read_bytes())
    content[at] ^= 1
    path.write_bytes(content)


def _replace_shard(directory: Path) -> None:
    """Put another save in the place of the checkpoint, whole in itself."""
    state = {f"w{i}": np.full((8, 125), 7, np.float32) for i in range(6)}
    for name in directory.glob("*.sig"):
        name.rename(name.with_suffix(".kept"))
    tensorkeep.save_checkpoint(state, directory, max_shard_size="8KB")
    for name in directory.glob("*.kept"):
        name.rename(name.with_suffix(".sig"))


def _replace_by_link(directory: Path) -> None:
    moved = directory.parent / "moved.json"
    (directory / "config.json").rename(moved)
    (directory / "config.json").symlink_to(moved)


SHARD = "model-00002-of-00003.safetensors"

TAMPERINGS: dict[str, Callable[[Path], object]] = {
    "a byte of a tensor": lambda directory: _flip(directory / SHARD, -1),
    "a byte of a header": lambda directory: _flip(directory / SHARD, 40),
    "a byte of the index": lambda directory: _flip(directory / "model.safetensors.index.json", 200),
    "a byte of another file": lambda directory: _flip(directory / "config.json", 0),
    "a byte of a file in a folder": lambda directory: _flip(directory / "code" / "modeling.py", 0),
    "another whole checkpoint": _replace_shard,
    "a missing file": lambda directory: (directory / "config.json").unlink(),
    "a missing shard": lambda directory: (directory / SHARD).unlink(),
    "a file that nobody signed": lambda directory: (directory / "tokenizer.json").write_text("{}"),
    "a file in a folder that nobody signed": lambda directory: (directory / "code" / "x.py").write_text(""),
    "a hidden file that nobody signed": lambda directory: (directory / ".hidden").write_text(""),
    "a link in the place of a file": _replace_by_link,
}
"""What changes in a signed checkpoint, to a function that does it."""

"""Pushes to a store that end before each of their changes, as a kill ends them."""

from __future__ import annotations

from contextlib import ExitStack
from functools import partialmethod
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

import tensorkeep
from tensorkeep.transport import RemotePath

__all__ = ["push_killed_everywhere"]

OLD = {f"w{n}": np.random.default_rng(n).standard_normal((100, 200), np.float32) for n in range(4)}
NEW = OLD | {name: OLD[name] + 1 for name in ("w0", "w3")}


class Killed(BaseException):
    """Is raised where the process ends."""


def push_killed_everywhere(url: Any, folder: Path) -> None:
    """Replace a checkpoint by another; whenever that ends, readers have the one or the other, and no file is lost."""
    for name, state in (("old", OLD), ("new", NEW)):
        tensorkeep.save_checkpoint(state, folder / name, max_shard_size="200KB")
        folder.joinpath(name, "config.json").write_text(f'"{name}"')
    tensorkeep.push(folder / "old", url)
    theirs = RemotePath.of(url).joined("model-mine.safetensors")
    theirs.swap(b"somebody's", None)

    n_done = 0
    while not _push_killed_after(n_done, folder / "new", url):
        now = tensorkeep.load(url)
        assert any(all(np.array_equal(now[name], state[name]) for name in state) for state in (OLD, NEW))
        assert tensorkeep.verify(url).is_whole
        n_done += 1

    assert n_done >= 3
    assert all(np.array_equal(weights, NEW[name]) for name, weights in tensorkeep.load(url).items())
    assert tensorkeep.verify(url).is_whole
    assert theirs.open().nbytes == 10


def _push_killed_after(n: int, folder: Path, url: Any) -> bool:
    """Push until some changes are done; return whether that was all of it."""
    n_done = 0

    def change(self: RemotePath, *arguments: Any, before: Any, **options: Any) -> Any:
        nonlocal n_done
        if n_done == n:
            raise Killed
        n_done += 1
        return before(self, *arguments, **options)

    with ExitStack() as patches:
        for name in ("put", "swap", "remove_all", "remove"):
            killing = partialmethod(change, before=getattr(RemotePath, name))
            patches.enter_context(patch.object(RemotePath, name, killing))
        try:
            tensorkeep.push(folder, url, overwrite=True)
        except Killed:
            return False
    return True

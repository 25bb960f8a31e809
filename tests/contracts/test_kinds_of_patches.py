"""A checkpoint that is kept as another one and patches."""

from __future__ import annotations

from pathlib import Path

import tensorkeep
from tensorkeep.kinds.safetensors import Checkpoint
from tensorkeep.patches.steps import link_files, write_patched
from tensorkeep.tensors import prepare
from tests.contracts.kind import Arrays, KindContract


class TestPatchedCheckpoints(KindContract):
    def save(self, arrays: Arrays, directory: Path) -> Path:
        save_patched({name: array + 1 for name, array in arrays.items()}, arrays, directory / "step")
        return directory / "step"


def save_patched(before: Arrays, after: Arrays, directory: Path) -> None:
    """Write arrays as others and a patch; the first ones are removed, since their files have other names."""
    store = tensorkeep.CheckpointStore(directory.parent / "run")
    with tensorkeep.open(store.save(0, before)) as opened:
        assert isinstance(opened, Checkpoint)
        directory.mkdir()
        link_files(opened, (), str(directory))
        write_patched(opened, prepare(after), str(directory), metadata=None, index={}, durable=False, progress=None)
    store.remove(0)

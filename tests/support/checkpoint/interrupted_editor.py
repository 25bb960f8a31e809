"""A program that stops edits of checkpoints and kills them, for `test_edit`.

`interrupted_editor.py FOLDER CASE`: stops an edit in the middle of every write, and before every other call that
changes the file system, in turn. While it is stopped, and again after it was killed, the checkpoint is read; then one
more edit must succeed and leave nothing behind. Prints one line of JSON.
"""

from __future__ import annotations

import itertools
import json
import shutil
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import safetensors.numpy

import tensorkeep
from tests.support.checkpoint.interrupted_saver import kill, stopped

INDEX = "model.safetensors.index.json"
TENSORS = {f"w{n}": np.full((4, 100), n, np.float32) for n in range(4)}
LONG = "a long name, for which there is no room, " * 8


class Case(msgspec.Struct, frozen=True):
    """An edit.

    Attributes:
        max_shard_size: Of the checkpoint that is edited.
        has_room: Whether its headers have been edited before, and so have room for more.
        rename: What becomes of names.
        entry: The file that is edited by its own path, or empty for the directory.
        is_summed: Whether SHA-256 are added instead.
        gets_blocks: Whether block digests are added instead.
    """

    max_shard_size: int
    has_room: bool
    rename: dict[str, str]
    entry: str = ""
    is_summed: bool = False
    gets_blocks: bool = False


SWAPPED = {"w0": "w3", "w3": "w0"}
CASES = {
    "shards in place": Case(3200, True, SWAPPED),
    "shards anew": Case(3200, False, {"w0": LONG}),
    "one shard anew and one in place": Case(3200, False, {"w0": LONG, "w3": "v"}),
    "a file in place": Case(10**6, True, SWAPPED, "model.safetensors"),
    "a file anew": Case(10**6, False, {"w0": LONG}, "model.safetensors"),
    "sums of shards": Case(3200, False, {}, is_summed=True),
    "sums of a file": Case(10**6, False, {}, is_summed=True),
    "blocks of shards": Case(3200, False, {}, gets_blocks=True),
}


def named(rename: dict[str, str]) -> dict[str, np.ndarray]:
    return {rename.get(name, name): array for name, array in TENSORS.items()}


def side(loaded: dict[str, np.ndarray], case: Case) -> str:
    """Say whether loaded tensors are those from before or after the edit; they must be all of either."""
    for what, expected in (("old", TENSORS), ("new", named(case.rename))):
        if loaded.keys() == expected.keys() and all(
            np.array_equal(loaded[name], expected[name]) for name in expected
        ):
            return what
    raise AssertionError(f"a mixture: { {name: float(array.flat[0]) for name, array in loaded.items()} }")


def state(directory: Path, case: Case) -> str:
    """Open, load and verify the checkpoint."""
    path = directory / case.entry
    with tensorkeep.open(path) as opened:
        found, metadata = side(opened.load(), case), opened.metadata.get("is")
    verification = tensorkeep.verify(path)
    assert verification.is_whole, verification.findings
    if case.gets_blocks:
        return "new" if verification.n_others else "old"
    if case.is_summed:
        return "new" if verification.n_sha256 else "old"
    assert metadata == found, f"{metadata} metadata, {found} names"
    return found


def state_for_others(directory: Path, case: Case) -> str:
    """Read as transformers does: the single file wins, then the index says which shards."""
    single = directory / "model.safetensors"
    if single.exists():
        return side(safetensors.numpy.load_file(single), case)
    if not (directory / INDEX).exists():
        return "nothing"
    weight_map = json.loads((directory / INDEX).read_text())["weight_map"]
    loaded = {}
    for file in set(weight_map.values()):
        for name, array in safetensors.numpy.load_file(directory / file).items():
            assert weight_map.get(name) == file, f"{name} is in {file}, and should be in {weight_map.get(name)}"
            loaded[name] = array
    return side(loaded, case)


def prepare(directory: Path, case: Case) -> None:
    text = {"is": "old", "room": "x" * 600} if case.has_room else {"is": "old"}
    tensorkeep.save_checkpoint(TENSORS, directory, max_shard_size=case.max_shard_size, metadata=text)
    if case.has_room:
        tensorkeep.edit(directory, unset=["room"])
    elif not case.is_summed:
        assert state(directory, case) == "old"


def change(directory: Path, case: Case) -> None:
    if case.gets_blocks:
        tensorkeep.add_block_digests(directory)
    elif case.is_summed:
        tensorkeep.add_sha256(directory)
    else:
        tensorkeep.edit(directory / case.entry, set_metadata={"is": "new"}, rename=case.rename)


def at_every_call(folder: Path, case: Case) -> dict[str, Any]:
    template = folder / "template"
    prepare(template, case)
    counts: Counter[str] = Counter()
    for at, torn in ((at, torn) for at in itertools.count() for torn in (False, True)):
        directory = folder / f"{at}{'t' if torn else ''}"
        shutil.copytree(template, directory)
        pid = stopped(lambda: change(directory, case), at, torn=torn)  # noqa: B023 - called at once
        if pid is None and torn:
            continue
        if pid is None:
            assert state(directory, case) == "new"
            return dict(counts)
        try:
            during, others = state(directory, case), state_for_others(directory, case)
        finally:
            kill(pid)
        after = state(directory, case)
        assert (during, after) != ("new", "old"), "a reader saw the edit, and then it was gone"
        counts["kills"] += 1
        counts[after] += 1
        counts["others saw nothing"] += others == "nothing"
        assert case.is_summed or case.gets_blocks or state_for_others(directory, case) == after
        tensorkeep.edit(directory, set_metadata={"is": "newer"})
        left = {path.name for path in directory.iterdir() if path.suffix != ".blocks"} - {INDEX}
        assert left == {path.name for path in template.iterdir()} - {INDEX}, f"left over: {left}"
        assert tensorkeep.open(directory).metadata["is"] == "newer"
        assert tensorkeep.verify(directory).is_whole
        shutil.rmtree(directory)
    raise AssertionError


if __name__ == "__main__":
    print(json.dumps(at_every_call(Path(sys.argv[1]), CASES[sys.argv[2]])))

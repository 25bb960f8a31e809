"""Patches of strangers: a value or one of our errors, in bounded memory, and nothing half applied."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import tensorkeep
from tensorkeep import patches
from tensorkeep.errors import FormatError, IntegrityError, TensorkeepError, UnsupportedError
from tests.support.patches.models import contents, save
from tests.support.soak import SEED, rounds

KEY = "tensorkeep.patch"
Said = dict[str, Any]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("hostile")
    save(folder / "old", 1)
    save(folder / "new", 2)
    patches.make(folder / "old", folder / "new", folder / "patch.safetensors", reversible=True)
    return folder


def rewritten(run: Path, to: Path, change: Callable[[Said, dict[str, Any]], None]) -> Path:
    """Write the patch with other contents, whose digests are right."""
    with tensorkeep.open(run / "patch.safetensors") as patch:
        said, tensors = json.loads(patch.metadata[KEY]), patch.load()
    change(said, tensors)
    tensorkeep.save(tensors, to, metadata={KEY: json.dumps(said)})
    return to


def refuse(run: Path, tmp_path: Path, patch: Path, *errors: type[TensorkeepError]) -> None:
    """Try all that a patch is used for; the checkpoint must stay as it is."""
    model = Path(shutil.copytree(run / "old", tmp_path / "model", dirs_exist_ok=True))
    with pytest.raises(errors):
        patches.apply(model, patch)
    assert contents(model) == contents(run / "old")
    for read in (lambda: patches.chain([patch], tmp_path / "chain", overwrite=True), lambda: look(model, patch)):
        with suppress(TensorkeepError):
            read()


def look(model: Path, patch: Path) -> None:
    with tensorkeep.open(model) as base, tensorkeep.open(patch) as opened:
        view = patches.view(base, opened)
        for lazy in view.values():
            lazy.load()


def set_change(name: str, **members: Any) -> Callable[[Said, dict[str, Any]], None]:
    return lambda said, _: said["tensors"].setdefault(name, {}).update(members)


def set_payload(payload: bytes) -> Callable[[Said, dict[str, Any]], None]:
    return lambda _, tensors: tensors.update({"delta/float32": np.frombuffer(payload, np.uint8)})


HUGE = ["F32", [2**40], "0" * 64]
CHANGES: dict[str, Callable[[Said, dict[str, Any]], None]] = {
    "a tensor that is not there": set_change("float32", delta="delta/none"),
    "differences of another tensor": set_change("float32", delta="delta/float64"),
    "a whole tensor for differences": set_change("float32", delta="new/reshaped"),
    "another digest for the result": set_change("float32", new=["F32", [20, 40], "0" * 64]),
    "another digest for the old tensor": set_change("float32", old=["F32", [20, 40], "0" * 64]),
    "another shape": set_change("float32", new=["F32", [40, 20], "0" * 64]),
    "a tensor that the old checkpoint lacks": set_change("ghost", old=HUGE),
    "a huge tensor": set_change("ghost", new=HUGE, new_whole="new/reshaped"),
    "a huge tensor of differences": set_change("ghost", old=HUGE, new=HUGE, delta="delta/float32"),
    "a new tensor without data": set_change("ghost", new=["F32", [1], "0" * 64]),
    "neither old nor new": set_change("ghost"),
    "no differences": set_payload(b""),
    "a table that is too long": set_payload(b"\xff" * 4),
    "a block that is cut": set_payload((3).to_bytes(4, "little") + b"abc"),
    "other bytes at the end": set_payload(bytes(4) + b"abc"),
    "nothing changes": set_payload(bytes(4)),
    "another old checkpoint": lambda said, _: said["old"].update(digest="0" * 64),
    "another new checkpoint": lambda said, _: said["new"].update(digest="0" * 64),
    "other names": lambda said, _: said["new"]["texts"].update(names=["a"]),
    "files elsewhere": lambda said, _: said["new"]["texts"].update(files={"float32": "../x.safetensors"}),
    "files of other names": lambda said, _: said["new"]["texts"].update(files={"float32": "x.json"}),
    "pieces of nothing": lambda said, _: said["new"]["texts"].update(splits={"float32": ["a", "b"]}),
    "a malformed state": lambda said, _: said["new"]["texts"].update(state='{"state":'),
    "a later version": lambda said, _: said.update(patch=2),
    "no description": lambda said, _: said.clear(),
    "text for numbers": set_change("float32", old=["F32", "20", "0" * 64]),
    "a negative shape": set_change("float32", old=["F32", [-20, -40], "0" * 64]),
}


@pytest.mark.parametrize("name", CHANGES)
def test_patches_that_contradict_themselves_are_refused(run: Path, tmp_path: Path, name: str) -> None:
    patch = rewritten(run, tmp_path / "patch.safetensors", CHANGES[name])

    refuse(run, tmp_path, patch, FormatError, IntegrityError, UnsupportedError, TensorkeepError)


def test_what_is_no_patch_is_refused(run: Path, tmp_path: Path) -> None:
    tensorkeep.save({"w": np.ones(3)}, tmp_path / "none.safetensors")

    refuse(run, tmp_path, tmp_path / "none.safetensors", FormatError)


@pytest.mark.soak
def test_with_flipped_bits_nothing_changes_or_the_result_is_right(run: Path, tmp_path: Path) -> None:
    data = (run / "patch.safetensors").read_bytes()
    chance, patch, n_refused, n = random.Random(SEED), tmp_path / "patch.safetensors", 0, rounds(25, 3000)
    for _ in range(n):
        broken = bytearray(data)
        broken[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
        patch.write_bytes(broken)
        model = Path(shutil.copytree(run / "old", tmp_path / "model"))
        try:
            patches.apply(model, patch, durable=False)
        except TensorkeepError:
            n_refused += 1
            assert contents(model) == contents(run / "old")
        else:  # what only undo needs
            assert contents(model) == contents(run / "new")
        shutil.rmtree(model)
    assert n_refused > 0.8 * n


def test_damaged_differences_are_not_added_up(run: Path, tmp_path: Path) -> None:
    data, patch = (run / "patch.safetensors").read_bytes(), tmp_path / "patch.safetensors"
    start = 8 + int.from_bytes(data[:8], "little")
    for place in range(start, len(data), max(1, (len(data) - start) // 40)):
        patch.write_bytes(data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :])
        with pytest.raises(IntegrityError):
            patches.chain(patch, tmp_path / "chain.safetensors", overwrite=True)

    assert not (tmp_path / "chain.safetensors").exists()


def test_a_name_that_no_file_can_hold_is_refused(tmp_path: Path) -> None:
    torch.save({"\ud800": torch.zeros(3)}, tmp_path / "old.pt")
    torch.save({"\ud800": torch.ones(3)}, tmp_path / "new.pt")

    with pytest.raises(TensorkeepError):
        patches.make(tmp_path / "old.pt", tmp_path / "new.pt", tmp_path / "p.safetensors")

"""Steps that are kept as patches for the ones before: bit for bit, each alone, and only where it is worthwhile."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable
from contextlib import nullcontext as nothing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import tensorkeep
from tensorkeep.cli import main
from tensorkeep.errors import FormatError, IntegrityError, UnsupportedError
from tensorkeep.kinds.patched import _checkpoint
from tensorkeep.store import CheckpointStore, DamagedStepWarning, DeltaWarning, _deltas
from tests.support.store.run_states import state, step_of, store


def is_patched(root: Path, step: int) -> bool:
    return (root / f"step-{step:08d}" / "patched.json").exists()


def saved(root: Path, steps: range, **options: Any) -> CheckpointStore:
    """Save some steps, of which all but every third may be patches."""
    made = store(root, **{"keep_last": None, "deltas": 2, **options})
    for step in steps:
        made.save(step, state(step), {"valid_loss": -step}, metadata={"step": str(step)})
    return made


def test_every_step_is_what_was_saved(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = saved(tmp_path, range(7))

    assert [is_patched(tmp_path, step) for step in range(7)] == [False, True, True, False, True, True, False]
    for step in range(7):
        assert step_of(made.load(step)) == step
        assert made.metrics_of(step) == {"valid_loss": -step}
        with made.open(step, framework="torch") as opened:
            assert opened.metadata == {"format": "pt", "step": str(step)}
            assert isinstance(opened["model.layers.0.adapter"][2:4], torch.Tensor)
        path = made.path_of(step)
        assert main(["inspect", path, "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["state"]["problem"] is None
        assert tensorkeep.verify(path).is_whole
        assert step_of(tensorkeep.load(path)) == step
    assert (made.latest(), made.best()) == (6, 6)
    sizes = {each.found.step: each.files for each in made.listing()}
    assert sizes[2].own_nbytes < sizes[2].nbytes // 50
    with made.open(1) as old, made.open(2) as new:
        assert tensorkeep.diff(old, new).changed


def test_a_step_needs_no_other(tmp_path: Path) -> None:
    made = saved(tmp_path, range(3))
    made.remove(1)
    made.remove(0)

    assert made.steps() == [2]
    assert step_of(made.load()) == 2
    shutil.copytree(made.path_of(2), tmp_path / "copy")
    assert step_of(tensorkeep.load(tmp_path / "copy")) == 2
    tensorkeep.convert(tmp_path / "copy", tmp_path / "whole")
    assert step_of(tensorkeep.load(tmp_path / "whole")) == 2


def test_rules_remove_steps_as_ever(tmp_path: Path) -> None:
    made = saved(tmp_path, range(8), keep_last=2, keep_best=0)

    assert made.steps() == [6, 7]
    assert [step_of(made.load(step)) for step in made.steps()] == [6, 7]


def test_shared_memory_is_shared_again(tmp_path: Path) -> None:
    made = store(tmp_path, deltas=True)
    for step in range(3):
        weight = torch.full((300, 40), 2.0)
        weight[:step] = step
        made.save(step, {"head": weight, "embed": weight, "bias": torch.zeros(0, 3), "names": ["a", step]})

    assert is_patched(tmp_path, 2)
    loaded = made.load(2)
    assert loaded["head"].data_ptr() == loaded["embed"].data_ptr()
    assert torch.equal(loaded["embed"], weight)
    assert loaded["names"] == ["a", 2]
    only = made.load(2, only="embed", framework="numpy", ties="copy")
    assert np.array_equal(only["embed"], weight.numpy())


@pytest.mark.parametrize(
    "change",
    [
        lambda step: {"all": np.random.default_rng(step).normal(size=5000)},
        lambda step: {"all": torch.arange(9000), "part": (whole := torch.arange(99) + step)[3:], "whole": whole},
    ],
    ids=["much", "parts"],
)
def test_what_is_no_smaller_or_shares_parts_is_saved_whole(tmp_path: Path, change: Any) -> None:
    made = store(tmp_path, deltas=True)
    for step in range(2):
        made.save(step, change(step))

    assert not is_patched(tmp_path, 1)
    assert torch.equal(*(torch.as_tensor(each["all"]) for each in (made.load(1), change(1))))


def test_tensors_come_and_go(tmp_path: Path) -> None:
    states = [
        {"a": np.arange(4000), "gone": np.ones(3)},
        {"new": np.ones((2, 2), np.float16), "a": np.arange(4000) * 1},
        {"a": np.arange(4000), "new": np.ones(4, np.int8)},
    ]
    made = store(tmp_path, deltas=True)
    for step, each in enumerate(states):
        made.save(step, each)

    for step, each in enumerate(states):
        loaded = made.load(step)
        assert list(loaded) == list(each)
        for name, array in each.items():
            np.testing.assert_array_equal(loaded[name], array, strict=True)


def test_a_damaged_step_is_found_and_nothing_is_built_on_it(tmp_path: Path) -> None:
    made = saved(tmp_path, range(2))
    shard = next(path for path in (tmp_path / "step-00000001" / "base").glob("*.safetensors"))
    content = bytearray(shard.read_bytes())
    shard.unlink()  # its other name keeps the bytes
    content[-100] ^= 1
    shard.write_bytes(content)

    with pytest.raises(IntegrityError):
        made.load(1)
    with pytest.warns(DamagedStepWarning):
        assert step_of(made.load()) == 0
    assert tensorkeep.verify(made.path_of(1)).is_damaged
    saved(tmp_path, range(2, 3))  # by another process, which does not know yet
    assert not is_patched(tmp_path, 2)
    assert step_of(made.load(2)) == 2


def test_each_changed_byte_of_what_names_the_files_is_found(tmp_path: Path) -> None:
    made = saved(tmp_path, range(2))
    document = tmp_path / "step-00000001" / "patched.json"
    text = document.read_bytes()
    others = [text[:at] + bytes([text[at] ^ 1]) + text[at + 1 :] for at in range(0, len(text), 7)]

    for other in [*others, text.replace(b'"1.patch.safetensors"', b""), text + b" "]:
        document.write_bytes(other)
        with pytest.raises((IntegrityError, FormatError, UnsupportedError)):
            made.load(1)


@pytest.mark.parametrize("name", ["patched.json", "1.patch.safetensors", "base/model.safetensors.index.json"])
def test_a_missing_file_is_damage(tmp_path: Path, name: str) -> None:
    made = saved(tmp_path, range(2))
    (tmp_path / "step-00000001" / name).unlink()

    assert store(tmp_path).steps() == [0]
    with pytest.warns(DamagedStepWarning) if name != "patched.json" else nothing():
        assert step_of(made.load()) == 0


def test_a_step_that_is_saved_again_is_the_new_one(tmp_path: Path) -> None:
    made = saved(tmp_path, range(3))
    made.save(1, state(7))
    assert not is_patched(tmp_path, 1) or step_of(made.load(1)) == 7
    store(tmp_path, deltas=False).save(2, state(8))
    assert step_of(made.load(2)) == 8
    assert step_of(tensorkeep.load(made.path_of(2))) == 8

    made.save(3, state(3))
    assert not is_patched(tmp_path, 2), "what was left of the patches is removed by the next save"
    assert [step_of(made.load(step)) for step in made.steps()] == [0, 7, 8, 3]


def replacing(run: CheckpointStore, folder: Path) -> Callable[[], None]:
    """Return what puts another job's step in the place of step 1."""
    other = saved(folder / "other", range(7, 8))
    other.save(1, state(9))

    def replace() -> None:
        Path(run.path_of(1)).rename(folder / "old")
        Path(other.path_of(1)).rename(run.path_of(1))

    return replace


def test_nothing_is_built_on_a_step_that_is_saved_again_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, link = saved(tmp_path / "run", range(2)), _deltas.link_files
    replace = replacing(made, tmp_path)

    def link_later(*given: Any) -> None:
        replace()
        link(*given)

    monkeypatch.setattr(_deltas, "link_files", link_later)
    made.save(2, state(2))

    assert not is_patched(tmp_path / "run", 2)
    assert [step_of(made.load(step)) for step in made.steps()] == [0, 9, 2]


def test_a_step_that_is_replaced_while_it_is_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made, parse = saved(tmp_path / "run", range(2)), _checkpoint.parse_document
    replace = replacing(made, tmp_path)

    def then_replaced(*given: Any) -> Any:
        monkeypatch.setattr(_checkpoint, "parse_document", parse)
        replace()
        return parse(*given)

    monkeypatch.setattr(_checkpoint, "parse_document", then_replaced)
    assert step_of(made.load(1)) == 9


def test_without_second_names_steps_are_saved_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = saved(tmp_path, range(1))

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    with pytest.warns(DeltaWarning, match="saved whole"):
        made.save(1, state(1))

    assert not is_patched(tmp_path, 1)
    assert step_of(made.load(1)) == 1


@pytest.mark.parametrize("deltas", [-1, 5000])
def test_impossible_numbers_are_refused(tmp_path: Path, deltas: int) -> None:
    with pytest.raises(UnsupportedError, match="deltas"):
        CheckpointStore(tmp_path, deltas=deltas)


def test_saves_in_the_background_are_patches_too(tmp_path: Path) -> None:
    made = saved(tmp_path, range(1))
    made.save_async(1, state(1)).result()

    assert is_patched(tmp_path, 1)
    assert step_of(made.load(1)) == 1


def test_a_text_without_a_digest_is_refused_in_one_sentence(tmp_path: Path) -> None:
    made = saved(tmp_path, range(2))
    document = tmp_path / "step-00000001" / "patched.json"
    document.write_bytes(re.sub(rb'"check":"[0-9a-f]{64}",', b"", document.read_bytes()))

    with pytest.raises(IntegrityError, match="what the checkpoint is made of is not what was saved") as raised:
        tensorkeep.open(made.path_of(1))
    assert str(raised.value).count("patched.json") == 1

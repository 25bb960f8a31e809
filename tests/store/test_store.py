"""Steps saved, found, loaded and removed."""

from __future__ import annotations

import collections
import errno
import json
import math
import os
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import safetensors.numpy
import torch

import tensorkeep
from tensorkeep.errors import (
    BusyError,
    IntegrityError,
    SourceMissingError,
    StateError,
    TransportError,
    UnsupportedError,
)
from tensorkeep.kinds.safetensors import read_index
from tensorkeep.layout import emit_index
from tensorkeep.store import CheckpointStore, DamagedStepWarning, RetentionWarning
from tensorkeep.transport import transaction
from tests.support.store.run_states import names, shards, state, step_of, store

INDEX = "model.safetensors.index.json"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "run"


def flip(path: Path, place: int = -1) -> None:
    """Change one byte of a file that other steps may share."""
    content = bytearray(path.read_bytes())
    content[place] ^= 1
    path.write_bytes(content)


def test_a_run(root: Path) -> None:
    kept = CheckpointStore(root, keep_last=2)

    for step, loss in ((100, 3.0), (200, 1.0), (300, 2.0), (400, 2.5), (500, 2.25)):
        assert kept.save(step, state(step), {"valid_loss": loss, "lr": 1e-3}) == str(root / f"step-{step:08d}")

    assert kept.steps() == [200, 400, 500]
    assert (kept.latest(), kept.best()) == (500, 200)
    assert (list(kept), len(kept), 200 in kept, 300 in kept) == ([200, 400, 500], 3, True, False)
    assert kept.metrics_of(200) == {"valid_loss": 1.0, "lr": 1e-3}
    assert [step_of(kept.load(step)) for step in ("latest", "best", 400)] == [500, 200, 400]
    assert names(root) == ["step-00000200", "step-00000400", "step-00000500"]


def test_a_new_object_finds_what_another_saved(root: Path) -> None:
    store(root).save(7, state(7), {"valid_loss": 0.5})

    found = CheckpointStore(root)

    assert (found.steps(), found.latest(), found.best()) == ([7], 7, 7)
    assert step_of(found.load()) == 7


def test_an_empty_store(root: Path) -> None:
    empty = store(root)

    assert (empty.steps(), empty.latest(), empty.best(), len(empty)) == ([], None, None, 0)
    assert not root.exists()
    with pytest.raises(SourceMissingError, match="no whole step"):
        empty.load()
    with pytest.raises(SourceMissingError, match="no step has the metric"):
        empty.load("best")
    for act in (empty.open, empty.load, empty.metrics_of, empty.remove):
        with pytest.raises(SourceMissingError):
            act(5)


def test_the_state_comes_back_as_it_was(root: Path) -> None:
    tied = torch.arange(6.0).reshape(2, 3)
    saved = {"model": {"a": tied, "b": tied}, "best": (1, None, "x"), "seen": collections.Counter("aab"), "none": {}}
    store(root).save(1, saved)

    loaded = store(root).load()

    assert torch.equal(loaded["model"]["a"], tied)
    assert loaded["model"]["a"].data_ptr() == loaded["model"]["b"].data_ptr()
    assert (loaded["best"], loaded["seen"], loaded["none"]) == ((1, None, "x"), collections.Counter("aab"), {})
    assert isinstance(store(root).load(framework="numpy")["model"]["a"], np.ndarray)
    assert list(store(root).load(only="model.a")["model"]) == ["a"]


def test_a_state_without_tensors(root: Path) -> None:
    kept = store(root)

    kept.save(1, {"epoch": 1})
    kept.save(2, {"epoch": 2})

    assert (kept.steps(), kept.load()) == ([1, 2], {"epoch": 2})


def test_a_step_without_tensors_is_whole(root: Path) -> None:
    path = store(root).save(1, {"step": 1})

    done = subprocess.run([sys.executable, "-m", "tensorkeep", "verify", path], capture_output=True, text=True)

    assert (done.returncode, done.stdout) == (0, "whole: index, no tensors\n")


def test_others_read_the_files(root: Path) -> None:
    store(root).save(3, state(3))

    loaded: dict[str, np.ndarray] = {}
    for path in shards(root, 3).values():
        loaded |= safetensors.numpy.load_file(path)
    index = json.loads((root / "step-00000003" / INDEX).read_text())

    np.testing.assert_array_equal(loaded["model.layers.0.adapter"], state(3)["model"]["layers.0.adapter"])
    assert index["weight_map"].keys() == loaded.keys()
    assert index["metadata"]["tensorkeep_store"]["step"] == 3
    assert tensorkeep.verify(root / "step-00000003").is_whole


def test_metrics_are_any_numbers(root: Path) -> None:
    given = {
        "nan": math.nan,
        "inf": math.inf,
        "less": -math.inf,
        "int": 3,
        "torch": torch.tensor(2.5),
        "numpy": np.float32(0.5),
    }

    store(root, monitor="less").save(1, {"a": 1}, given)
    found = store(root).metrics_of(1)

    assert math.isnan(found.pop("nan"))
    assert found == {"inf": math.inf, "less": -math.inf, "int": 3.0, "torch": 2.5, "numpy": 0.5}
    assert store(root, monitor="nan").best() is None
    assert store(root, monitor="less").best() == 1


@pytest.mark.parametrize("metrics", [{"a": "1"}, {"a": None}, {1: 2.0}, {"a": [1, 2]}, {"a": 10**400}, {"a\n": 1}])
def test_what_is_no_metric_is_refused_before_anything_is_written(root: Path, metrics: Any) -> None:
    with pytest.raises(StateError, match="metric"):
        store(root).save(1, {"a": 1}, metrics)

    assert not root.exists()


@pytest.mark.parametrize("step", [-1, 10**15, 1.0, "5", True, None])
def test_what_is_no_step_is_refused(root: Path, step: Any) -> None:
    for act in (
        lambda: store(root).save(step, {}),
        lambda: store(root).load(step),
        lambda: store(root).path_of(step),
    ):
        with pytest.raises(UnsupportedError, match="not the number of a step"):
            act()


@pytest.mark.parametrize(
    "options", [{"keep_last": 0}, {"keep_best": -1}, {"keep_every": 0}, {"mode": "best"}, {"max_shard_size": "x"}]
)
def test_rules_that_make_no_sense_are_refused(root: Path, options: Any) -> None:
    with pytest.raises(UnsupportedError):
        CheckpointStore(root, **options)


def test_what_is_no_data_changes_nothing(root: Path) -> None:
    kept = store(root)
    kept.save(1, state(1))

    with pytest.raises(StateError):
        kept.save(2, {"f": print})

    assert names(root) == ["step-00000001"]
    assert step_of(kept.load()) == 1


def test_a_step_is_saved_again(root: Path) -> None:
    kept = store(root)
    kept.save(1, state(1), {"valid_loss": 1})
    kept.save(2, state(2), {"valid_loss": 2})

    kept.save(2, {**state(2), "step": 2}, {"valid_loss": 0.5})

    assert kept.best() == 2
    assert step_of(kept.load(2)) == 2
    assert tensorkeep.verify(kept.path_of(2)).is_whole


def test_a_step_with_a_lower_number_is_the_last_one_when_it_is_saved_last(root: Path) -> None:
    kept = store(root, keep_last=1)
    kept.save(900, state(900))

    kept.save(500, state(500))

    assert kept.steps() == [500]


def test_a_run_that_goes_back_is_followed(root: Path) -> None:
    kept = store(root, keep_last=3)
    for step in (100, 200, 300, 400, 500):
        kept.save(step, state(step))
    assert step_of(kept.load(300)) == 300

    kept.save(310, state(310))
    assert (kept.steps(), kept.latest(), step_of(kept.load())) == ([310, 400, 500], 310, 310)
    kept.save(320, state(320))
    kept.save(330, state(330))

    assert kept.steps() == [310, 320, 330]
    assert (store(root).latest(), step_of(store(root).load())) == (330, 330)
    assert [each.found.step for each in kept.listing() if each.is_latest] == [330]
    kept.save(310, state(310))
    assert kept.latest() == 310, "it was saved again"


def say_when(step: Path, saved_at: str) -> None:
    """Let the record of a step name another time."""
    index = read_index(str(step / INDEX))
    record = {**index.metadata["tensorkeep_store"], "saved_at": saved_at}
    (step / INDEX).write_bytes(
        emit_index(msgspec.structs.replace(index, metadata={**index.metadata, "tensorkeep_store": record}))
    )


@pytest.mark.parametrize(
    "saved_at", ["2999-01-01T00:00:00.000+00:00", "2999-01-01T05:30:00+05:30", "9999-12-31T23:59:59.999999Z"]
)
def test_a_clock_that_is_set_back_does_not_change_the_order(root: Path, saved_at: str) -> None:
    kept = store(root, keep_last=2)
    kept.save(1, state(1))
    say_when(root / "step-00000001", saved_at)
    for step in (2, 3):
        kept.save(step, state(step))

    assert (kept.steps(), kept.latest()) == ([2, 3], 3)


@pytest.mark.parametrize(
    "saved_at", ["", "yesterday", "2027-01-31", "2027-01-31T12:00:00", "0001-01-01T00:00:00+14:00"]
)
def test_a_step_of_no_known_time_is_left_alone(root: Path, saved_at: str) -> None:
    kept = store(root, keep_last=1)
    kept.save(1, state(1))
    say_when(root / "step-00000001", saved_at)
    kept.save(2, state(2))

    assert kept.steps() == [2]
    assert [each.found.condition for each in kept.listing()] == ["foreign", "whole"]


def test_many_steps_of_one_instant_have_an_order(root: Path) -> None:
    kept = store(root, keep_last=None)
    steps = [5, 4, 3, 8, 1]

    for step in steps:
        kept.save(step, {"step": step})
        assert kept.latest() == step

    assert kept.steps() == sorted(steps)


def test_an_interrupted_step_never_wins(root: Path) -> None:
    kept = store(root)
    kept.save(500, state(500))
    (root / "step-00001000" / ".model.tensorkeep-staging").mkdir(parents=True)
    (root / "step-00001000" / ".model.tensorkeep-staging" / "model-00001-of-00001.safetensors").write_bytes(b"half")

    assert (kept.steps(), kept.latest()) == ([500], 500)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert step_of(kept.load()) == 500
    with pytest.raises(SourceMissingError):
        kept.load(1000)
    kept.save(600, state(600))
    assert names(root) == ["step-00000500", "step-00000600"]


def test_a_directory_with_anything_else_is_left_alone(root: Path) -> None:
    kept = store(root, keep_last=1, keep_best=0)
    (root / "step-00000001").mkdir(parents=True)
    (root / "step-00000001" / "notes.txt").write_text("mine")
    tensorkeep.save_checkpoint({"a": np.ones(3)}, root / "step-00000002")
    for name in ("step-3", "step-00000004.old", "best", ".hidden"):
        (root / name).mkdir()
    (root / "step-00000005").write_text("a file")

    for step in (10, 20, 30):
        kept.save(step, state(step))

    assert kept.steps() == [30]
    assert names(root) == [
        *(".hidden", "best", "step-00000001", "step-00000002", "step-00000004.old", "step-00000005"),
        *("step-00000030", "step-3"),
    ]
    with pytest.raises(UnsupportedError, match="not a step of this store"):
        kept.load(2)


def test_a_copy_under_another_number_is_no_step(root: Path) -> None:
    kept = store(root)
    kept.save(1, state(1))
    (root / "step-00000001").rename(root / "step-00000009")

    assert kept.steps() == []


def test_what_a_dead_process_was_removing_is_swept(root: Path) -> None:
    kept = store(root)
    kept.save(1, state(1))
    aside = root / ".step-00000000.tensorkeep-removed-0123456789abcdef"
    aside.mkdir()
    (aside / "model-00001-of-00001.safetensors").write_bytes(b"old")

    kept.save(2, state(2))

    assert names(root) == ["step-00000001", "step-00000002"]


def test_the_newest_is_damaged_and_the_one_before_is_loaded(root: Path) -> None:
    kept = store(root)
    for step in (1, 2, 3):
        kept.save(step, state(step))
    damaged = next(path for path in shards(root, 3).values() if path.stat().st_nlink == 1)
    flip(damaged)

    with pytest.warns(DamagedStepWarning, match="step 3 is not as it was saved"):
        assert step_of(kept.load()) == 2
    with pytest.raises(IntegrityError, match="not those that were saved"):
        kept.load(3)
    assert kept.load(3, verify=False)["step"] == 3
    assert store(root).latest() == 3, "only load looks at the bytes of tensors"
    assert kept.latest() == 2, "this one has seen them"
    kept.save(4, state(4))
    assert not any(path.samefile(damaged) for path in shards(root, 4).values()), "nothing of it is used again"
    assert step_of(kept.load()) == 4


@pytest.mark.parametrize("damage", ["header", "cut off", "index", "missing shard"])
def test_a_step_with_damaged_headers_is_none(root: Path, damage: str) -> None:
    kept = store(root)
    for step in (1, 2):
        kept.save(step, state(step), {"valid_loss": -step})
    assert kept.steps() == [1, 2]
    path = next(path for path in shards(root, 2).values() if path.stat().st_nlink == 1)
    if damage == "header":
        flip(path, 30)
    elif damage == "cut off":
        os.truncate(path, path.stat().st_size - 1)
    elif damage == "index":
        flip(root / "step-00000002" / INDEX, 100)
    else:
        path.unlink()

    assert (kept.steps(), kept.latest(), kept.best()) == ([1], 1, 1)
    with pytest.warns(DamagedStepWarning, match="step 2"):
        assert step_of(kept.load()) == 1
    with pytest.raises((IntegrityError, SourceMissingError, tensorkeep.errors.FormatError)):
        kept.load(2)
    assert [found.condition for found in (each.found for each in kept.listing())] == ["whole", "damaged"]


def test_damaged_steps_do_not_count_and_go_when_enough_whole_ones_came_after(root: Path) -> None:
    kept = store(root, keep_last=2, keep_best=0)
    for step in (1, 2, 3):
        kept.save(step, state(step))
    os.truncate(root / "step-00000003" / INDEX, 10)

    kept.save(4, state(4))
    assert names(root) == ["step-00000002", "step-00000003", "step-00000004"]
    kept.save(5, state(5))

    assert names(root) == ["step-00000004", "step-00000005"]


def test_all_are_damaged(root: Path) -> None:
    kept = store(root)
    kept.save(1, state(1))
    os.truncate(root / "step-00000001" / INDEX, 10)

    with pytest.warns(DamagedStepWarning), pytest.raises(SourceMissingError, match="steps 1, which are damaged"):
        kept.load()


def test_remove(root: Path) -> None:
    kept = store(root)
    for step in (1, 2):
        kept.save(step, state(step))
    opened = kept.open(2)

    kept.remove(2)

    assert names(root) == ["step-00000001"]
    assert step_of(kept.load()) == 1
    assert opened["step" if "step" in opened else "model.layers.0.adapter"][0, 0] == 2
    with pytest.raises(SourceMissingError, match=r"no such step.*Whole steps, the highest first: 1"):
        kept.remove(2)


def test_the_directory_of_a_store_is_no_checkpoint(root: Path) -> None:
    store(root).save(1, state(1))

    for use in (tensorkeep.open, tensorkeep.load, tensorkeep.verify):
        with pytest.raises(
            SourceMissingError, match=r"no checkpoint in the directory.*CheckpointStore\(path\)\.load"
        ):
            use(root)


def test_a_step_that_is_being_saved_is_not_removed(root: Path) -> None:
    kept = store(root, keep_last=1, keep_best=0)
    kept.save(1, state(1))

    with transaction(root / "step-00000001", "model"):
        with pytest.raises(BusyError):
            kept.remove(1)
        kept.save(2, state(2))
        assert kept.steps() == [1, 2]
    kept.save(3, state(3))

    assert kept.steps() == [3]


def test_a_step_that_is_a_link_loses_the_link_only(root: Path, tmp_path: Path) -> None:
    kept = store(root)
    kept.save(1, state(1))
    elsewhere = tmp_path / "elsewhere" / "step-00000001"
    elsewhere.parent.mkdir()
    (root / "step-00000001").rename(elsewhere)
    (root / "step-00000001").symlink_to(elsewhere)

    assert step_of(kept.load()) == 1
    kept.remove(1)

    assert names(root) == []
    assert (elsewhere / INDEX).exists()


def test_old_steps_that_cannot_be_removed_do_not_undo_the_save(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = store(root, keep_last=1, keep_best=0)
    kept.save(1, state(1))

    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "rename", refuse)
    with pytest.warns(RetentionWarning, match="could not remove old steps"):
        kept.save(2, state(2))

    assert kept.steps() == [1, 2]


def test_a_store_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("a file")

    with pytest.raises(TransportError, match=r"the store is not a directory.*found a file") as caught:
        store(tmp_path / "run")

    assert caught.value.errno == errno.ENOTDIR


@pytest.mark.parametrize("step", ["last", "20", ""])
def test_only_two_words_stand_for_a_step(root: Path, step: Any) -> None:
    kept = store(root)
    for number in (10, 20):
        kept.save(number, {"a": 1})

    with pytest.raises(UnsupportedError, match=r'expected a number, "latest" or "best".*Whole steps.*: 20, 10'):
        kept.load(step)


def test_a_step_that_is_not_there_is_answered_with_those_that_are(root: Path) -> None:
    kept = store(root, keep_last=None)
    with pytest.raises(SourceMissingError, match="There are no whole steps"):
        kept.load(1)
    for number in range(12):
        kept.save(number, {"a": 1})

    for use in (kept.load, kept.open, kept.metrics_of):
        with pytest.raises(SourceMissingError, match=r"Whole steps, the highest first: 11, 10, 9, .*, 2 and 2 more"):
            use(21)


def test_metrics_that_do_not_tell_the_best_are_told(root: Path) -> None:
    kept = store(root, keep_last=1)

    with pytest.warns(RetentionWarning, match="lack `valid_loss`, and have only loss, acc.*monitor=") as caught:
        kept.save(1, {"a": 1}, {"loss": 0.5, "acc": 0.1})
    assert caught[0].filename == __file__
    with pytest.warns(RetentionWarning):
        kept.save_async(2, {"a": 1}, {"loss": 0.5}).result()

    with pytest.raises(SourceMissingError, match=r"expected a step with `valid_loss`, found `loss`.*monitor="):
        kept.load("best")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        kept.save(3, {"a": 1})
        kept.save(4, {"a": 1}, {"valid_loss": 1.0, "loss": 2.0})
        store(root, keep_best=0, prune=True).save(5, {"a": 1}, {"loss": 1.0})
        store(root, keep_last=None).save(6, {"a": 1}, {"loss": 1.0})


def test_a_loss_that_has_a_graph_is_a_number(root: Path) -> None:
    loss = torch.ones((), requires_grad=True) * 2

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        store(root).save(1, {"a": 1}, {"valid_loss": loss})

    assert store(root).metrics_of(1) == {"valid_loss": 2.0}


@pytest.mark.parametrize("metrics", [0.5, [0.5], "valid_loss", torch.ones(())])
def test_metrics_are_a_dict(root: Path, metrics: Any) -> None:
    with pytest.raises(StateError, match="metrics are not a dict: expected a dict such as"):
        store(root).save(1, {"a": 1}, metrics)
    assert not root.exists()


def test_the_working_directory_may_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    kept = store(Path("run"))
    handle = kept.save_async(1, state(1))
    os.chdir("elsewhere")
    handle.result()
    kept.save(2, state(2))

    assert kept.steps() == CheckpointStore(tmp_path / "run").steps() == [1, 2]
    assert names(tmp_path / "elsewhere") == []


def test_in_the_background(root: Path) -> None:
    kept = store(root, keep_last=1, keep_best=0)
    live = state(1)

    first = kept.save_async(1, live, {"valid_loss": 1.0})
    for tensor in live["model"].values():
        tensor[:] = -7
    first.result()
    second = kept.save_async(2, state(2))
    second.result()

    assert kept.steps() == [2]
    assert step_of(kept.load()) == 2


def test_no_save_waits_for_less_than_none(root: Path) -> None:
    with pytest.raises(UnsupportedError, match="max_waiting"):
        store(root).save_async(1, state(1), max_waiting=-1)


def test_an_error_in_the_background_comes_with_the_next_save(root: Path) -> None:
    kept = store(root)
    root.write_text("a file")

    kept.save_async(1, state(1))
    with pytest.raises(TransportError):
        kept.save_async(2, state(2)).result()

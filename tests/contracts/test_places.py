"""What every place of a store promises: steps whole or absent, found, kept by rules, and nothing of others removed.

A new place passes these tests with one more function in `PLACES`.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tensorkeep
from tensorkeep.checkpoint import SaveOptions, destination_of, plan_whole
from tensorkeep.errors import (
    BusyError,
    FormatError,
    IntegrityError,
    SourceChangedError,
    SourceMissingError,
    TensorkeepError,
    UnsupportedError,
)
from tensorkeep.store import (
    CheckpointStore,
    DamagedStepWarning,
    RetentionWarning,
    UnguardedStoreWarning,
    is_store,
    place_of,
)
from tensorkeep.tensors import prepare
from tests.support.remote.s3_bucket import Bucket
from tests.support.store.places import PLACES, KeptAt
from tests.support.store.run_states import N_LAYERS, state, step_of, store

pytestmark = pytest.mark.filterwarnings(f"ignore::{UnguardedStoreWarning.__module__}.UnguardedStoreWarning")

INDEX = "model.safetensors.index.json"


@pytest.fixture(scope="module")
def bucket() -> Iterator[Bucket]:
    with Bucket.served() as served:
        yield served


@pytest.fixture(params=PLACES)
def at(request: pytest.FixtureRequest, tmp_path: Path, bucket: Bucket) -> KeptAt:
    return request.param(tmp_path, bucket)


def flip(at: KeptAt, name: str, place: int = -1) -> None:
    content = bytearray(at.get(name))
    content[place] ^= 1
    at.put(name, bytes(content))


def steps_at(at: KeptAt) -> list[int]:
    return sorted({int(name[5:13]) for name in at.names() if name.startswith("step-")})


def test_a_run(at: KeptAt) -> None:
    kept = store(at.root, keep_last=2)

    for step, loss in ((100, 3.0), (200, 1.0), (300, 2.0), (400, 2.5), (500, 2.25)):
        assert kept.save(step, state(step), {"valid_loss": loss, "lr": 1e-3}) == kept.path_of(step)

    for found in (kept, CheckpointStore(at.root)):
        assert found.steps() == [200, 400, 500] == steps_at(at)
        assert (found.latest(), found.best()) == (500, 200)
        assert found.metrics_of(200) == {"valid_loss": 1.0, "lr": 1e-3}
        assert [step_of(found.load(step)) for step in ("latest", "best", 400)] == [500, 200, 400]
    assert [(each.found.step, each.is_latest, each.is_best) for each in kept.listing()] == [
        *((200, False, True), (400, False, False), (500, True, False))
    ]
    assert all(each.files.n_shards == len(at.shards(each.found.step)) for each in kept.listing())
    assert all(each.files.nbytes > N_LAYERS * 512 * 300 * 4 for each in kept.listing())
    assert "500" in kept._repr_html_()
    assert is_store(at.root if isinstance(at.root, str) else str(at.root))
    assert tensorkeep.verify(kept.path_of(500)).is_whole
    assert step_of(tensorkeep.load(kept.path_of(400))) == 400


def test_an_empty_store(at: KeptAt) -> None:
    empty = store(at.root)

    assert (empty.steps(), empty.latest(), empty.best(), len(empty)) == ([], None, None, 0)
    with pytest.raises(SourceMissingError, match="no whole step"):
        empty.load()
    with pytest.raises(SourceMissingError, match="no step has the metric"):
        empty.load("best")
    for act in (empty.open, empty.load, empty.metrics_of, empty.remove):
        with pytest.raises(SourceMissingError):
            act(5)
    for look in (empty.listing, empty.prune):
        with pytest.raises(SourceMissingError):
            look()
    assert at.names() == set()


def test_a_run_that_goes_back_and_saves_a_step_again(at: KeptAt) -> None:
    kept = store(at.root, keep_last=2)
    for step in (100, 200, 300):
        kept.save(step, state(step))

    kept.save(210, state(210))
    assert (kept.steps(), kept.latest()) == ([210, 300], 210)
    kept.save(300, {"again": np.ones(3)}, {"valid_loss": 0.5})

    assert (kept.steps(), kept.latest(), kept.best()) == ([210, 300], 300, 300)
    assert kept.load()["again"].tolist() == [1, 1, 1]
    assert CheckpointStore(at.root).metrics_of(300) == {"valid_loss": 0.5}
    assert len(at.of_step(300)) == 2, "of the first save nothing is left"


def test_what_did_not_change_is_there_in_either_step_when_the_other_is_removed(at: KeptAt) -> None:
    kept = store(at.root)
    for step in (1, 2, 3):
        kept.save(step, state(step))

    kept.remove(2)

    assert kept.steps() == [1, 3] == steps_at(at)
    assert [step_of(kept.load(step)) for step in (1, 3)] == [1, 3]
    assert all(tensorkeep.verify(kept.path_of(step)).is_whole for step in (1, 3))
    with pytest.raises(SourceMissingError, match=r"no such step|no such file|nothing there"):
        kept.remove(2)


def test_the_newest_is_damaged_and_the_one_before_is_loaded(at: KeptAt) -> None:
    kept = store(at.root)
    for step in (1, 2, 3):
        kept.save(step, state(step))
    flip(at, next(iter(at.shards(3))))

    with pytest.warns(DamagedStepWarning, match="step 3 is not as it was saved"):
        assert step_of(kept.load()) == 2
    with pytest.raises(IntegrityError):
        kept.load(3)
    assert kept.load(3, verify=False)["step"] == 3
    assert kept.latest() == 2, "this one has seen them"
    kept.save(4, state(4))
    assert step_of(kept.load()) == 4


@pytest.mark.parametrize("damage", ["cut off", "index"])
def test_a_step_with_a_damaged_index_or_a_short_file_is_none(at: KeptAt, damage: str) -> None:
    kept = store(at.root, keep_last=2, keep_best=0)
    for step in (1, 2):
        kept.save(step, state(step))
    name = f"step-00000002/{INDEX}" if damage == "index" else next(iter(at.shards(2)))
    flip(at, name, 100) if damage == "index" else at.put(name, at.get(name)[:-1])

    assert (kept.steps(), kept.latest()) == ([1], 1)
    with pytest.warns(DamagedStepWarning, match="step 2"):
        assert step_of(kept.load()) == 1
    with pytest.raises((IntegrityError, SourceMissingError, FormatError)):
        kept.load(2)
    kept.save(3, state(3))
    assert [each.found.condition for each in kept.listing()] == ["whole", "damaged", "whole"]
    kept.save(4, state(4))
    assert kept.steps() == [3, 4], "enough whole ones came after"
    assert 2 not in steps_at(at) or damage == "index"


def test_files_of_others_are_left_alone(at: KeptAt) -> None:
    others = {"step-00000001/notes.txt", "step-3/x", "best", "step-00000004.old/x", "step-00000005/sub/model.bin"}
    for name in others:
        at.put(name, b"mine")
    path = place_of(at.root).path_of(2)
    tensorkeep.save_checkpoint({"a": np.ones(3)}, path)
    tensorkeep.save_checkpoint({"a": np.ones(3), "b": np.ones(2)}, place_of(at.root).path_of(6), max_shard_size=20)
    theirs = {*others, *at.of_step(2), *at.of_step(6)}
    kept = store(at.root, keep_last=1, keep_best=0)

    for step in (10, 20, 30):
        kept.save(step, state(step))

    assert kept.steps() == [30]
    assert at.names() == {*theirs, *at.of_step(30), "tensorkeep-store.json"}
    conditions = {each.found.step: each.found.condition for each in kept.listing()}
    assert conditions == {1: "foreign", 2: "foreign", 5: "foreign", 6: "foreign", 30: "whole"}
    with pytest.raises(UnsupportedError, match="not a step of this store"):
        kept.load(6)


def test_rules_are_recorded_and_others_remove_nothing(at: KeptAt) -> None:
    store(at.root, keep_last=5).save(1, state(1))
    for step in (2, 3):
        store(at.root).save(step, state(step))

    with pytest.warns(RetentionWarning, match="no step is removed"):
        store(at.root, keep_last=1).save(4, state(4))
    assert store(at.root).steps() == [1, 2, 3, 4]

    assert store(at.root, keep_last=2, prune=True).prune(dry_run=True) == [1, 2]
    assert store(at.root, keep_last=2, prune=True).prune() == [1, 2]
    assert store(at.root).steps() == [3, 4]
    at.put("tensorkeep-store.json", b"{")
    with pytest.raises(FormatError, match="rules of the store are damaged"):
        store(at.root).best()


def test_background_saves(at: KeptAt) -> None:
    kept = store(at.root, keep_last=2)

    handles = [kept.save_async(step, state(step), max_waiting=1) for step in (1, 2, 3)]
    for handle in handles:
        handle.result(60)

    assert kept.steps() == [2, 3]
    assert step_of(kept.load()) == 3


def test_a_save_that_fails_changes_nothing(at: KeptAt) -> None:
    kept = store(at.root, keep_last=1)
    kept.save(1, state(1))
    before = at.names()

    def fail(done: int, total: int) -> None:
        if done > total // 2:
            raise OverflowError

    with pytest.raises(OverflowError):
        kept.save(2, state(-2), progress=fail)

    assert at.names() == before
    assert step_of(kept.load()) == 1


def test_a_step_that_was_saved_since_it_was_seen_is_not_removed(at: KeptAt) -> None:
    kept, place = store(at.root), place_of(at.root)
    kept.save(1, state(1))
    (seen,) = (each.found for each in kept.listing())
    kept.save(1, state(1))

    with pytest.raises(BusyError, match="another process has just saved"):
        place.remove(1, seen)

    assert kept.steps() == [1]


def test_a_save_that_begins_before_a_removal_and_ends_after_it_is_told_or_whole(at: KeptAt) -> None:
    kept = store(at.root, keep_last=None)
    for step in (1, 2):
        kept.save(step, state(step))
    options = SaveOptions(max_shard_nbytes=10**6, index_metadata={})
    plan = plan_whole(prepare(state(1)), options)
    save = destination_of(kept.path_of(1), plan, options)
    save.open()
    for file in plan.files:
        save.stage(file, lambda _: None)

    try:
        kept.remove(1)
        is_removed = True
    except BusyError:
        is_removed = False
    try:
        save.commit()
        is_saved = True
    except SourceChangedError:
        is_saved = False
    finally:
        save.abandon()

    assert is_removed != is_saved
    assert (1 in steps_at(at)) == is_saved
    assert kept.steps()[-1] == 2


def test_of_two_that_save_one_step_both_are_told_the_truth(at: KeptAt) -> None:
    kept = store(at.root)
    errors: list[TensorkeepError] = []

    def save_within(done: int, _: int) -> None:
        if done and not errors:
            errors.append(BusyError("once"))
            try:
                store(at.root).save(1, {"a": np.full(3, 2.0)})
                errors.append(UnsupportedError("inner saved"))
            except BusyError as error:
                errors.append(error)

    with warnings.catch_warnings(action="ignore"):
        try:
            kept.save(1, {"a": np.full(3, 1.0)}, progress=save_within)
            saved = 1.0
        except SourceChangedError:
            saved = 2.0

    assert (saved == 2.0) == isinstance(errors[1], UnsupportedError)
    assert kept.load(1)["a"].tolist() == [saved] * 3
    assert len(at.of_step(1)) == 2


def test_others_remove_steps_while_they_are_read(at: KeptAt) -> None:
    kept = store(at.root, keep_last=None)
    for step in (1, 2, 3):
        kept.save(step, state(step))
    loader = kept._loader
    n_read = 0

    def read(opened: Any) -> Any:
        nonlocal n_read
        n_read += 1
        if n_read == 1:
            store(at.root).remove(3)
        return {name: opened[name][...] for name in opened}

    from tensorkeep.kinds import OpenOptions

    loaded = loader.load("latest", OpenOptions(), read, checks=False)

    assert loaded["model.layers.0.adapter"][0, 0] in {2, 3}

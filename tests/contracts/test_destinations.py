"""What every destination of a save promises: whole or not at all, nothing left behind, nothing of others removed.

A new destination passes these tests with one more function in `PLACES`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import tensorkeep
from tensorkeep.checkpoint import Destination, SaveOptions, destination_of, plan_whole
from tensorkeep.errors import BusyError, SourceChangedError
from tensorkeep.tensors import prepare
from tests.support.remote.s3_bucket import Bucket

SEVERAL = 2_000
"""Bytes of a shard, of which a state takes four."""

ONE = 1_000_000


class Place(NamedTuple):
    """A new, empty place, and how to look at it without the library."""

    path: Any
    names: Callable[[], set[str]]
    put: Callable[[str, bytes], object]


class Places(NamedTuple):
    """What the functions of `PLACES` make a place of."""

    tmp_path: Path
    bucket: Bucket


def in_directory(places: Places) -> Place:
    path = places.tmp_path / "step"
    path.mkdir()
    return Place(str(path), lambda: set(os.listdir(path)), lambda name, data: (path / name).write_bytes(data))


def in_store(places: Places) -> Place:
    prefix = places.tmp_path.name
    return Place(
        places.bucket.at(f"{prefix}/"),
        lambda: places.bucket.names(prefix),
        lambda name, data: places.bucket.client.put_object(Bucket="models", Key=f"{prefix}/{name}", Body=data),
    )


PLACES = [in_directory, in_store]


@pytest.fixture(scope="module")
def bucket() -> Iterator[Bucket]:
    with Bucket.served() as served:
        yield served


@pytest.fixture(params=PLACES)
def place(request: pytest.FixtureRequest, tmp_path: Path, bucket: Bucket) -> Place:
    return request.param(Places(tmp_path, bucket))


def state(number: int) -> dict[str, Any]:
    return {f"w{i}": np.full((20, 20), number, np.float32) for i in range(4)}


def destination(place: Place, number: int, nbytes: int = SEVERAL) -> tuple[Destination, list[str]]:
    options = SaveOptions(max_shard_nbytes=nbytes)
    plan = plan_whole(prepare(state(number)), options)
    return destination_of(place.path, plan, options), list(plan.files)


def staged(place: Place, number: int, nbytes: int = SEVERAL) -> Destination:
    made, files = destination(place, number, nbytes)
    made.open()
    for file in files:
        made.stage(file, lambda _: None)
    return made


def saved_number(place: Place) -> int:
    assert tensorkeep.verify(place.path).findings == ()
    loaded = tensorkeep.load(place.path)
    (number,) = {int(value) for tensor in loaded.values() for value in np.unique(tensor)}
    assert len(loaded) == 4
    return number


@pytest.mark.parametrize("nbytes", [ONE, SEVERAL])
def test_a_save_appears_whole_and_only_when_it_is_committed(place: Place, nbytes: int) -> None:
    save = staged(place, 1, nbytes)
    with pytest.raises(tensorkeep.errors.TensorkeepError):
        tensorkeep.open(place.path)

    save.commit()

    assert saved_number(place) == 1


@pytest.mark.parametrize("nbytes", [ONE, SEVERAL])
def test_readers_see_the_old_checkpoint_until_the_commit(place: Place, nbytes: int) -> None:
    staged(place, 1).commit()

    save = staged(place, 2, nbytes)
    assert saved_number(place) == 1
    save.commit()

    assert saved_number(place) == 2


@pytest.mark.parametrize("before", [None, 1])
def test_an_abandoned_save_leaves_nothing(place: Place, before: int | None) -> None:
    if before is not None:
        staged(place, before).commit()
    names = place.names()

    staged(place, 2).abandon()

    assert place.names() == names
    assert before is None or saved_number(place) == before


def test_a_save_that_failed_part_way_leaves_nothing(place: Place) -> None:
    staged(place, 1).commit()
    names = place.names()
    save, files = destination(place, 2)

    def fail(_: int) -> None:
        raise OverflowError

    save.open()
    save.stage(files[0], lambda _: None)
    with pytest.raises(OverflowError):
        save.stage(files[1], fail)
    save.abandon()

    assert place.names() == names
    assert saved_number(place) == 1


def test_abandoning_a_committed_save_changes_nothing(place: Place) -> None:
    save = staged(place, 1)
    save.commit()
    names = place.names()

    save.abandon()

    assert place.names() == names
    assert saved_number(place) == 1


def test_a_commit_removes_only_what_belongs_to_the_old_checkpoint(place: Place) -> None:
    others = {"config.json", "other.safetensors", "model-of-mine.txt"}
    for name in others:
        place.put(name, b"not of this checkpoint")
    staged(place, 1).commit()
    old = place.names() - others

    staged(place, 2, SEVERAL * 2).commit()

    assert place.names() >= others
    assert {name for name in place.names() - others if name in old} <= {"model.safetensors.index.json"}
    assert saved_number(place) == 2


def test_of_two_saves_at_a_time_one_is_refused(place: Place) -> None:
    staged(place, 1).commit()
    errors: list[Exception] = []
    first, second = staged(place, 2), None
    try:
        second = staged(place, 3)
        second.commit()
    except BusyError as error:
        errors.append(error)
    try:
        first.commit()
    except SourceChangedError as error:
        errors.append(error)
    finally:
        first.abandon()

    assert len(errors) == 1
    assert saved_number(place) == (2 if isinstance(errors[0], BusyError) else 3)
    n_files = len(place.names())
    staged(place, 4).commit()
    assert saved_number(place) == 4
    assert len(place.names()) == n_files

"""Nets saved to the URL of a directory: steps of a store, from which training continues to the last bit."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

import tensorkeep
from tensorkeep.errors import SourceMissingError, UnsupportedError
from tensorkeep.integrations.skorch import Checkpoint, LoadInitState, TrainEndCheckpoint, load_params
from tensorkeep.store import DamagedStepWarning
from tests.support.integrations.skorch.nets import X, Y, make_net, parts_of, same
from tests.support.remote.s3_bucket import Bucket
from tests.support.store.places import KeptAt, in_bucket


@pytest.fixture(scope="module")
def bucket() -> Iterator[Bucket]:
    with Bucket.served() as served:
        yield served


@pytest.fixture
def at(tmp_path: Path, bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> KeptAt:
    for name, value in bucket.environment.items():
        monkeypatch.setenv(name, value)
    return in_bucket(tmp_path, bucket)


@pytest.fixture
def url(at: KeptAt) -> str:
    """A plain URL, as in a user's program."""
    return str(at.root)


def fit(directory: str | Path, epochs: int, callback: type = Checkpoint) -> tuple[object, object]:
    torch.manual_seed(0)
    np.random.seed(0)
    saver = callback(dirname=directory, **({"monitor": None} if callback is Checkpoint else {}))
    net = make_net([saver, LoadInitState(saver)], epochs=epochs)
    return net.fit(X, Y), saver


def test_a_net_continues_from_a_bucket_as_from_a_directory(url: str, tmp_path: Path) -> None:
    for directory in (url, tmp_path):
        fit(directory, 2)
    (there, saver), (here, _) = (fit(directory, 2) for directory in (url, tmp_path))

    assert len(there.history) == 4
    assert same(parts_of(there), parts_of(here))
    kept = tensorkeep.CheckpointStore(url)
    assert kept.latest() == 4
    assert kept.metrics_of(4)["valid_loss"] == there.history[-1, "valid_loss"]
    loaded = make_net().initialize()
    load_params(loaded, checkpoint=saver)
    assert same(parts_of(loaded)["module"], parts_of(there)["module"])


def test_the_last_epoch_is_damaged_and_the_one_before_it_continues(url: str, at: KeptAt) -> None:
    fit(url, 2)
    shard = next(iter(at.shards(2)))
    content = bytearray(at.get(shard))
    content[-1] ^= 1
    at.put(shard, bytes(content))

    with pytest.warns(DamagedStepWarning):
        net, _ = fit(url, 1)

    assert len(net.history) == 2


def test_at_the_end_of_training(url: str) -> None:
    net, saver = fit(url, 2, TrainEndCheckpoint)

    assert tensorkeep.CheckpointStore(f"{url}/train_end").steps() == [2]
    loaded = make_net().initialize()
    load_params(loaded, checkpoint=saver)
    assert same(parts_of(loaded)["module"], parts_of(net)["module"])


def test_nothing_was_saved_yet_or_can_be(url: str) -> None:
    with pytest.raises(SourceMissingError, match="nothing was saved"):
        load_params(make_net().initialize(), checkpoint=Checkpoint(dirname=url))
    with pytest.raises(UnsupportedError, match="cannot be written to"):
        make_net([Checkpoint(dirname="https://127.0.0.1:9/run")]).initialize()

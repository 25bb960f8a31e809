"""Runs whose state is in a bucket: one checkpoint at a URL, or numbered ones as steps of a store."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import tensorkeep
from tensorkeep.errors import RefusedError, SourceMissingError, UnsupportedError
from tensorkeep.store import DamagedStepWarning
from tests.support.integrations.accelerate.runs import everything, make_run, same, train
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


def test_a_run_continues_as_one_that_was_never_stopped(url: str) -> None:
    run = make_run(0)
    whole, expected = train(run, range(3)), everything(run)
    run = make_run(0)
    first = train(run, range(2))
    assert run.accelerator.save_state(url) == url

    run = make_run(5)
    run.accelerator.load_state(url)
    rest = train(run, range(2, 3))

    assert first + rest == whole
    assert same(everything(run), expected)
    assert tensorkeep.verify(url).is_whole


def test_numbered_checkpoints_are_steps(url: str, at: KeptAt) -> None:
    run = make_run(0, project=url, total_limit=2)
    with pytest.raises(SourceMissingError, match="no checkpoint yet"):
        run.accelerator.load_state()
    for epoch in range(3):
        train(run, range(epoch, epoch + 1))
        run.accelerator.save_state()
    expected = everything(run)

    kept = tensorkeep.CheckpointStore(f"{url}/checkpoints")
    assert kept.steps() == [1, 2]
    other = make_run(5, project=url, total_limit=2)
    with pytest.raises(RefusedError, match="checkpoints of another run"):
        other.accelerator.save_state()
    other.accelerator.load_state()
    assert same(everything(other), expected)
    other.accelerator.save_state()
    assert kept.steps() == [2, 3]
    shard = max(name for name in at.names() if "/step-00000003/" in name and name.endswith(".safetensors"))
    content = bytearray(at.get(shard))
    content[-1] ^= 1
    at.put(shard, bytes(content))
    last = make_run(6, project=url, total_limit=2)
    with pytest.warns(DamagedStepWarning):
        last.accelerator.load_state()
    assert same(everything(last), expected)
    last.accelerator.save_state()
    assert kept.latest() == 4


def test_hooks_need_a_directory(url: str) -> None:
    run = make_run(0)
    run.accelerator.register_save_state_pre_hook(lambda *_: None)

    with pytest.raises(UnsupportedError, match="hooks need a directory"):
        run.accelerator.save_state(url)

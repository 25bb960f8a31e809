"""A Trainer whose output directory is in a bucket: interrupted, it ends as one that was not."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import tensorkeep
from tensorkeep.errors import FormatError, SourceMissingError, UnsupportedError
from tensorkeep.integrations.transformers import DamagedCheckpointWarning, from_pretrained, get_last_checkpoint
from tensorkeep.store import DamagedStepWarning
from tests.support.integrations.transformers.tiny_trainers import (
    InterruptAt,
    Interrupted,
    assert_equal,
    trainer,
    weights,
)
from tests.support.remote.s3_bucket import Bucket
from tests.support.store.places import KeptAt, in_bucket


@pytest.fixture(scope="module")
def bucket() -> Iterator[Bucket]:
    with Bucket.served() as served:
        yield served


@pytest.fixture
def at(tmp_path: Path, bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> KeptAt:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    for name, value in bucket.environment.items():
        monkeypatch.setenv(name, value)
    return in_bucket(tmp_path, bucket)


def interrupted(url: Any, step: int, **settings: Any) -> None:
    with pytest.raises(Interrupted):
        trainer(url, callbacks=[InterruptAt(step)], **settings).train()


def resumed(url: Any, wanted: Any = True, **settings: Any) -> Any:
    run = trainer(url, **settings)
    torch.rand(7)  # another state than at the beginning
    run.train(resume_from_checkpoint=wanted)
    return run


def test_an_interrupted_run_ends_as_one_that_was_not(at: KeptAt, tmp_path: Path) -> None:
    settings = {"eval_strategy": "steps", "eval_steps": 5, "load_best_model_at_end": True, "save_total_limit": 2}
    whole = trainer(tmp_path / "whole", **settings)
    whole.train()
    interrupted(at.root, 13, **settings)

    run = resumed(at.root, **settings)

    assert_equal(weights(run.model), weights(whole.model))
    losses = [[entry["loss"] for entry in each.state.log_history if "loss" in entry] for each in (run, whole)]
    assert losses[0] == losses[1]
    kept = tensorkeep.CheckpointStore(at.root)
    assert run.args.output_dir == at.root
    assert run.state.best_model_checkpoint == kept.path_of(whole.state.best_global_step)
    assert kept.best() == whole.state.best_global_step
    assert kept.steps() == sorted({
        20,
        whole.state.best_global_step,
        *([15] if run.state.best_global_step == 20 else []),
    })
    assert os.listdir() == []
    assert b"/tmp" not in kept.load(20, only="files")["files"]["trainer_state.json"].tobytes()
    assert all(tensorkeep.verify(kept.path_of(step)).is_whole for step in kept.steps())
    assert get_last_checkpoint(at.root) == kept.path_of(20)

    again = resumed(at.root, kept.path_of(kept.steps()[0]), **settings)
    assert_equal(weights(again.model), weights(whole.model))
    run.save_model()
    assert_equal(weights(from_pretrained(type(run.model), at.root, cache_dir=tmp_path / "c")), weights(whole.model))


def test_the_last_is_damaged_and_the_one_before_continues(at: KeptAt, tmp_path: Path) -> None:
    interrupted(at.root, 13)
    kept = tensorkeep.CheckpointStore(at.root)
    name = next(iter(at.shards(10)))
    content = bytearray(at.get(name))
    content[-1] ^= 1
    at.put(name, bytes(content))

    with pytest.warns(DamagedCheckpointWarning, match="an older checkpoint is tried"):
        assert get_last_checkpoint(at.root) == kept.path_of(5)
    with pytest.warns(DamagedStepWarning, match="step 10 is not as it was saved"):
        run = resumed(str(at.root), max_steps=6)  # a plain URL, as in a user's program
    assert run.state.global_step == 6


def test_what_cannot_be_resumed_is_refused(at: KeptAt) -> None:
    with pytest.raises(SourceMissingError, match="no whole checkpoint"):
        resumed(at.root)
    with pytest.raises(UnsupportedError, match="push_to_hub needs a local output directory"):
        trainer(at.root, push_to_hub=True)
    trainer(at.root, max_steps=5, save_only_model=True).train()
    with pytest.raises(SourceMissingError, match=r"only the model.*step-00000005"):
        resumed(at.root)
    kept, state = tensorkeep.CheckpointStore(at.root), np.frombuffer(b'{"global_step": 7}', np.uint8)
    for content in (
        {"weights": np.ones(3)},
        {"files": {"trainer_state.json": np.frombuffer(b"{", np.uint8)}},
        {"files": {"trainer_state.json": state, "../out": state}},
        {"files": {"trainer_state.json": state}, "/tmp/out.safetensors": {"a": np.ones(3)}},
        {"files": {"trainer_state.json": state, "config.json": "text"}},
    ):
        kept.save(7, content)
        with pytest.raises(FormatError, match=r"not a (file of a checkpoint|checkpoint that a Trainer saved)"):
            resumed(at.root)

"""Nets in a search, a pipeline or several processes: callbacks are cloned, set and pickled there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from accelerate import Accelerator
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler
from skorch import NeuralNetClassifier
from skorch.callbacks import LRScheduler
from skorch.hf import AccelerateMixin

import tensorkeep
from tensorkeep.integrations.skorch import Checkpoint, LoadInitState, TrainEndCheckpoint, load_params
from tests.support import SUPPORT, forks
from tests.support.integrations.skorch.nets import Layers, X, Y, make_net, parts_of, same


def test_a_clone_has_the_same_arguments(tmp_path: Path) -> None:
    checkpoint = Checkpoint(dirname=str(tmp_path), f_checkpoint="all", f_teacher=None)
    at_end = TrainEndCheckpoint(f_params="p", dirname=str(tmp_path))
    net = make_net([checkpoint, LoadInitState(checkpoint), ("end", at_end), LoadInitState(at_end)])

    copied = clone(net)

    cloned = copied.callbacks[0]
    assert cloned is not checkpoint
    assert cloned.get_params() == checkpoint.get_params()
    fitted = copied.fit(X, Y)
    at_the_end = {"p", "optimizer.safetensors", "criterion.safetensors", "history.json", "training.safetensors"}
    assert {path.name for path in tmp_path.iterdir()} == {"all"} | {f"train_end_{name}" for name in at_the_end}
    assert len(fitted.history) == 2


@pytest.mark.parametrize("n_jobs", [None, 2])
def test_a_search_saves_the_best_of_each_fit(tmp_path: Path, n_jobs: int | None) -> None:
    pipeline = Pipeline([
        ("scale", StandardScaler()),
        ("net", make_net([("saving", Checkpoint(dirname=str(tmp_path), durable=False, load_best=True))], epochs=3)),
    ])
    prefixes = ["narrow-", "wide-"]
    grid = [
        {"net__module__width": [width], "net__callbacks__saving__fn_prefix": [prefix]}
        for width, prefix in zip([4, 16], prefixes, strict=True)
    ]

    search = GridSearchCV(pipeline, grid, cv=2, n_jobs=n_jobs, refit=True, error_score="raise").fit(X, Y)

    assert len(list(tmp_path.iterdir())) == 10
    for prefix, width in zip(prefixes, [4, 16], strict=True):
        loaded = make_net(module__width=width)
        load_params(loaded, checkpoint=Checkpoint(dirname=str(tmp_path), fn_prefix=prefix))
        assert all(tensorkeep.verify(path).is_whole for path in tmp_path.glob(f"{prefix}*.safetensors"))
    assert search.best_estimator_["net"].history[-1, "valid_loss_best"]
    assert search.score(X, Y) > 0.4


def test_jobs_that_save_to_the_same_files_wait_for_each_other(tmp_path: Path) -> None:
    net = make_net([Checkpoint(dirname=str(tmp_path), monitor=None)], epochs=4)

    GridSearchCV(net, {"lr": [0.01, 0.02, 0.03, 0.04]}, cv=2, n_jobs=2, refit=False, error_score="raise").fit(X, Y)

    load_params(loaded := make_net(), checkpoint=Checkpoint(dirname=str(tmp_path)))
    assert len(loaded.history) == 4
    assert parts_of(loaded)["optimizer"]["param_groups"][0]["lr"] in {0.01, 0.02, 0.03, 0.04}


class AcceleratedNet(AccelerateMixin, NeuralNetClassifier):
    pass


@pytest.mark.parametrize("unwrap_after_train", [True, False])
def test_a_net_of_accelerate_goes_on(tmp_path: Path, unwrap_after_train: bool) -> None:
    def make(folder: str, epochs: int) -> Any:
        checkpoint = Checkpoint(monitor=None, dirname=str(tmp_path / folder), load_best=False)
        schedule = LRScheduler("StepLR", step_size=1, gamma=0.5)
        np.random.seed(0)
        torch.manual_seed(0)
        return AcceleratedNet(
            Layers, accelerator=Accelerator(cpu=True), max_epochs=epochs, lr=0.1, optimizer=torch.optim.Adam,
            verbose=0, iterator_train__shuffle=True, unwrap_after_train=unwrap_after_train,
            callbacks=[LoadInitState(checkpoint), schedule, checkpoint],
        )  # fmt: skip

    whole = make("whole", 4).fit(X, Y)
    make("halves", 2).fit(X, Y)
    second = make("halves", 2).fit(X, Y)

    assert same(parts_of(second), parts_of(whole))
    plain = make_net().initialize()
    load_params(plain, f_params=tmp_path / "halves" / "params.safetensors")
    assert same(plain.module_.state_dict(), whole.module_.state_dict())


def test_of_two_processes_the_main_one_saves_and_both_go_on(tmp_path: Path) -> None:
    program = SUPPORT / "integrations" / "skorch" / "two_processes.py"
    done = forks.run(program, tmp_path, modules=[forks.TRAINING, "accelerate", "skorch"])

    assert not done.returncode, done.stderr
    said = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    expected = {"processes": 2, "epochs": [2, 4], "lr": 0.8 / 16, "same weights": True, "trained": True}
    assert said == [expected] * 2
    state = tensorkeep.load(tmp_path / "params.safetensors")
    assert sorted(state) == sorted(make_net().initialize().module_.state_dict()), "names without wrappers"

"""Whole states of Paddle."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import paddle
import pytest

import tensorkeep.paddle
from tensorkeep.errors import StateDictMismatchError
from tests.libraries.states import RunStates, as_numpy, flat

lr = paddle.optimizer.lr


class TestPaddle(RunStates):
    api = tensorkeep.paddle

    def run(self, width: int = 3) -> dict[str, Any]:
        nn = paddle.nn
        model = nn.Sequential(nn.Linear(4, width), nn.BatchNorm1D(width), nn.Dropout(0.5), nn.Linear(width, 2))
        schedule = lr.LinearWarmup(lr.CosineAnnealingDecay(0.01, 10), 3, 0.0, 0.01)
        return {"model": model, "optimizer": paddle.optimizer.AdamW(schedule, parameters=model.parameters())}

    def train(self, run: dict[str, Any], n_steps: int) -> None:
        optimizer = run["optimizer"]
        for _ in range(n_steps):
            (run["model"](paddle.randn([5, 4])) ** 2).sum().backward()
            optimizer.step()
            optimizer.clear_grad()
            if isinstance(optimizer._learning_rate, lr.LRScheduler):
                optimizer._learning_rate.step()

    def draw(self) -> Any:
        return paddle.rand([2]).tolist()

    def test_a_state_that_training_changed_is_refused(self) -> None:
        run = self.run()
        state = self.api.capture(**run)
        with pytest.raises(StateDictMismatchError, match=r"`0.weight` of model is the memory of the object itself"):
            self.api.restore(state, **run)

    @pytest.mark.parametrize("kind", ["Momentum", "RMSProp", "Lamb", "SGD"])
    def test_optimizers_that_have_not_made_a_step(self, kind: str, tmp_path: Path) -> None:
        def run() -> dict[str, Any]:
            model = paddle.nn.Sequential(paddle.nn.Linear(4, 3), paddle.nn.Linear(3, 2))
            groups = [{"params": model[0].parameters()}, {"params": model[1].parameters(), "learning_rate": 0.5}]
            return {"model": model, "optimizer": getattr(paddle.optimizer, kind)(0.01, parameters=groups)}

        whole, resumed = run(), run()
        self.train(whole, 2)
        tensorkeep.save(self.api.capture(**whole), tmp_path / "x.safetensors")
        self.train(whole, 2)
        self.api.restore(tmp_path / "x.safetensors", **resumed)
        self.train(resumed, 2)
        assert self.content(resumed) == self.content(whole)
        other = paddle.optimizer.Adagrad(0.01, parameters=whole["model"].parameters())
        with pytest.raises(StateDictMismatchError, match=f"Adagrad of 4 parameters.*{kind} of 4 parameters"):
            self.api.restore(tmp_path / "x.safetensors", model=whole["model"], optimizer=other)

    def test_broken_states_of_optimizers(self) -> None:
        run, fresh = self.run(), self.run()
        self.train(run, 1)
        for target in (run, fresh):
            before = self.content(target)
            for changes, message in (
                ({"class": "SGD"}, "another optimizer"),
                ({"parameters": ["x"]}, "another optimizer"),
                ({"parameters": 3}, "another optimizer"),
                ({"accumulators": 3}, "another optimizer"),
                ({"accumulators": {"strange": np.ones(3)}}, r"optimizer\.accumulators does not fit"),
                ({"accumulators": {"linear_0.w_0_moment1_0": "text"}}, r"optimizer\.accumulators does not fit"),
                ({"master_weights": {"strange": np.ones(3)}}, r"optimizer\.master_weights does not fit"),
                ({"schedule": None}, r"optimizer\.schedule is not the state of this LinearWarmup"),
                ({"schedule": {"last_epoch": "3"}}, r"optimizer\.schedule is not the state of this LinearWarmup"),
            ):
                state = as_numpy(self.api.capture(**run))
                state["optimizer"] |= changes
                with pytest.raises(StateDictMismatchError, match=message):
                    self.api.restore(state, **target)
            assert self.content(target) == before

    def test_broken_states_of_generators(self) -> None:
        words = np.zeros(313, np.uint64)
        good = {"device": -1, "seed": 3, "offset": 0, "words": words}
        before = self.draw_next()
        for saved in (
            3,
            [],
            [3],
            [good | {"words": words[1:]}],
            [good | {"words": words + np.uint64(313)}],
            [good | {"words": "text"}],
            [good | {"seed": "3"}],
            [good, good],
        ):
            with pytest.raises(StateDictMismatchError, match=r"rng\.paddle_cpu is not a state"):
                self.api.restore({"rng": {"paddle_cpu": saved}})
        assert self.draw_next() == before

    def draw_next(self) -> Any:
        state = paddle.get_rng_state()
        drawn = self.draw()
        paddle.set_rng_state(state)
        return drawn


def test_master_weights(tmp_path: Path) -> None:
    def run() -> dict[str, Any]:
        model = paddle.nn.Linear(2, 2)
        model.to(dtype="bfloat16")
        return {
            "model": model,
            "optimizer": paddle.optimizer.SGD(0.01, parameters=model.parameters(), multi_precision=True),
        }

    def train(run: dict[str, Any]) -> None:
        for parameter in run["model"].parameters():
            parameter.grad = paddle.ones(parameter.shape, dtype="bfloat16")
        run["optimizer"].step()

    whole, resumed = run(), run()
    train(whole)
    state = tensorkeep.paddle.capture(**whole)
    assert len(state["optimizer"]["master_weights"]) == 2
    tensorkeep.save(state, tmp_path / "x.safetensors")
    train(whole)
    tensorkeep.paddle.restore(tmp_path / "x.safetensors", **resumed)
    train(resumed)
    found, expected = (tensorkeep.paddle.capture(**run, rng=False) for run in (resumed, whole))
    assert flat(found) == flat(expected)


def test_schedulers_and_scalers_by_name(tmp_path: Path) -> None:
    schedule, scaler = lr.ReduceOnPlateau(0.1), paddle.amp.GradScaler(init_loss_scaling=8.0)
    schedule.step(paddle.to_tensor(1.0))
    tensorkeep.save(tensorkeep.paddle.capture(schedule=schedule, scaler=scaler), tmp_path / "x.safetensors")
    others = {"schedule": lr.ReduceOnPlateau(0.1), "scaler": paddle.amp.GradScaler(init_loss_scaling=2.0)}

    tensorkeep.paddle.restore(tmp_path / "x.safetensors", **others)

    assert others["schedule"].state_dict() == schedule.state_dict()
    assert others["scaler"].state_dict() == scaler.state_dict()
    with pytest.raises(StateDictMismatchError, match="schedule is not the state of this CosineAnnealingDecay"):
        tensorkeep.paddle.restore(tmp_path / "x.safetensors", schedule=lr.CosineAnnealingDecay(0.1, 10))


def lbfgs_run(width: int = 3, **options: Any) -> dict[str, Any]:
    paddle.seed(3)
    model = paddle.nn.Sequential(paddle.nn.Linear(4, width), paddle.nn.Tanh(), paddle.nn.Linear(width, 1))
    options = {"max_iter": 3, "history_size": 4} | options
    return {"model": model, "optimizer": paddle.optimizer.LBFGS(0.5, parameters=model.parameters(), **options)}


def train_by_lbfgs(run: dict[str, Any], n_steps: int) -> None:
    inputs = paddle.to_tensor(np.linspace(-1, 1, 40, dtype=np.float32).reshape(10, 4))
    model, optimizer = run["model"], run["optimizer"]

    def closure() -> Any:
        optimizer.clear_grad()
        loss = ((model(inputs) - paddle.sin(3 * inputs.sum(1, keepdim=True))) ** 2).mean()
        loss.backward()
        return loss

    for _ in range(n_steps):
        optimizer.step(closure)


@pytest.mark.parametrize("line_search_fn", [None, "strong_wolfe"])
@pytest.mark.parametrize("n_steps", [0, 1, 4])
def test_a_resumed_run_of_lbfgs_is_the_uninterrupted_one(
    n_steps: int, line_search_fn: str | None, tmp_path: Path
) -> None:
    whole, resumed = lbfgs_run(line_search_fn=line_search_fn), lbfgs_run(line_search_fn=line_search_fn)
    train_by_lbfgs(whole, n_steps)
    tensorkeep.save(tensorkeep.paddle.capture(**whole), tmp_path / "x.safetensors")
    train_by_lbfgs(whole, 3)
    train_by_lbfgs(resumed, 2)  # what it did before is forgotten
    tensorkeep.paddle.restore(tmp_path / "x.safetensors", **resumed)
    train_by_lbfgs(resumed, 3)

    found, expected = (tensorkeep.paddle.capture(**run, rng=False) for run in (resumed, whole))
    assert expected["optimizer"]["state"]["n_iter"] > 3
    assert flat(found) == flat(expected)


def test_a_state_that_does_not_fit_lbfgs_changes_nothing(tmp_path: Path) -> None:
    run = lbfgs_run()
    train_by_lbfgs(run, 2)
    good = as_numpy(tensorkeep.paddle.capture(optimizer=run["optimizer"], rng=False))["optimizer"]
    before = flat(tensorkeep.paddle.capture(**run, rng=False))
    held = good["state"]
    for state in (
        3,
        {"state": held},
        good | {"class": "Adam"},
        good | {"shapes": [[4, 3]]},
        good | {"state": held | {"d": held["d"][1:]}},
        good | {"state": held | {"d": held["d"].astype(np.float64)}},
        good | {"state": held | {"n_iter": -1}},
        good | {"state": held | {"prev_loss": "low"}},
        good | {"state": held | {"old_yk": held["old_yk"][1:]}},
        good | {"state": held | {"ro": 3}},
        good | {"state": held | {"other": 1.0}},
    ):
        with pytest.raises(StateDictMismatchError, match="optimizer "):
            tensorkeep.paddle.restore({"optimizer": state}, optimizer=run["optimizer"], rng=False)
    for other in (lbfgs_run(width=2), lbfgs_run(history_size=1)):
        with pytest.raises(StateDictMismatchError, match="optimizer "):
            tensorkeep.paddle.restore({"optimizer": good}, optimizer=other["optimizer"], rng=False)
    assert flat(tensorkeep.paddle.capture(**run, rng=False)) == before


def test_parameters_in_nested_states(tmp_path: Path) -> None:
    layer = paddle.nn.Linear(3, 2)
    frozen = paddle.nn.Linear(3, 2).weight
    frozen.stop_gradient = True
    followed = paddle.ones([2])
    followed.stop_gradient = False
    state = {"layer": layer.state_dict(), "frozen": frozen, "followed": followed, "plain": paddle.ones([2])}
    tensorkeep.save({"state": dict(state, layer=dict(state["layer"]))}, tmp_path / "x.safetensors")

    loaded = tensorkeep.load(tmp_path / "x.safetensors")["state"]

    weight = loaded["layer"]["weight"]
    assert type(weight) is type(layer.weight)
    assert weight.trainable
    assert np.array_equal(weight, layer.weight)
    assert [loaded[name].stop_gradient for name in ("frozen", "followed", "plain")] == [True, False, True]
    assert type(loaded["plain"]) is type(loaded["followed"]) is paddle.Tensor
    assert type(tensorkeep.load(tmp_path / "x.safetensors", framework="numpy")["state"]["frozen"]) is np.ndarray

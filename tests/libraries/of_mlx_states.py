"""Whole states of MLX."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim

import tensorkeep.mlx
from tests.libraries.states import RunStates, flat


class TestMlx(RunStates):
    api = tensorkeep.mlx

    def run(self, width: int = 3) -> dict[str, Any]:
        model = nn.Sequential(nn.Linear(4, width), nn.BatchNorm(width), nn.Dropout(0.5), nn.Linear(width, 2))
        return {"model": model, "optimizer": optim.AdamW(learning_rate=optim.cosine_decay(0.1, 10))}

    def train(self, run: dict[str, Any], n_steps: int) -> None:
        model, optimizer = run["model"], run["optimizer"]
        state: Any = [model.state, optimizer.state, mx.random.state]
        loss_and_grad: Any = nn.value_and_grad(model, lambda model, x: (model(x) ** 2).sum())

        @partial(mx.compile, inputs=state, outputs=state)
        def step(x: mx.array) -> mx.array:
            loss, gradients = loss_and_grad(model, x)
            optimizer.update(model, gradients)
            return loss  # type: ignore[no-any-return]

        for _ in range(n_steps):
            step(mx.random.normal((5, 4)))
            mx.eval(model.parameters(), optimizer.state)

    def draw(self) -> Any:
        return mx.random.normal((2,)).tolist()


def test_functions_that_were_compiled_before_see_what_is_restored() -> None:
    model: Any = nn.Linear(1, 1)

    @partial(mx.compile, inputs=model.state)
    def weight() -> mx.array:
        return model.weight * 1  # type: ignore[no-any-return]

    weight()
    state = {"model": {"weight": mx.array([[7.0]]), "bias": mx.zeros((1,))}}
    tensorkeep.mlx.restore(state, model=model, rng=False)
    assert weight().item() == 7


def test_half_precision_frozen_parameters_and_several_optimizers(tmp_path: Path) -> None:
    def run() -> dict[str, Any]:
        model: Any = nn.Sequential(nn.Linear(4, 2), nn.Linear(2, 2))
        model.set_dtype(mx.bfloat16)
        model.layers[0].freeze()
        optimizers = [optim.SGD(0.1, momentum=0.9), optim.Adam(0.1)]
        return {"model": model, "optimizer": optim.MultiOptimizer(optimizers, [lambda path, _: "bias" in path])}

    whole, resumed = run(), run()
    tensorkeep.save(tensorkeep.mlx.capture(**whole), tmp_path / "x.safetensors")
    tensorkeep.mlx.restore(tmp_path / "x.safetensors", **resumed)
    assert flat(tensorkeep.mlx.capture(**resumed)["model"]) == flat(tensorkeep.mlx.capture(**whole)["model"])
    assert resumed["model"].layers[0].weight.dtype == mx.bfloat16

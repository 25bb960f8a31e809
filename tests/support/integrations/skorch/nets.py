"""Small nets of skorch, what they are trained on, and what there is to compare of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from skorch import NeuralNet, NeuralNetClassifier
from torch import nn

torch.set_num_threads(1)  # in nets this small, more only wait for each other

X = np.random.default_rng(0).normal(size=(120, 6)).astype(np.float32)
Y = (X[:, :3].sum(1) > X[:, 3:].sum(1)).astype(np.int64)


class Layers(nn.Module):
    """A classifier with chance in it, and a buffer that counts."""

    def __init__(self, width: int = 8, dropout: float = 0.3) -> None:
        super().__init__()
        self.first = nn.Linear(6, width)
        self.norm = nn.BatchNorm1d(width)
        self.dropout = nn.Dropout(dropout)
        self.last = nn.Linear(width, 2)

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        return self.last(self.dropout(torch.relu(self.norm(self.first(values))))).softmax(-1)


class TiedLayers(nn.Module):
    """Two layers with one weight, which takes part once as it is and once transposed by nobody."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(6, 6)
        self.outer = nn.Linear(6, 6)
        self.outer.weight = self.inner.weight
        self.last = nn.Linear(6, 2)

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        return self.last(torch.relu(self.outer(torch.relu(self.inner(values))))).softmax(-1)


class CrosswiseLayers(nn.Module):
    """A weight that does not lie in order in memory."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(6, 2).t())

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        return nn.functional.linear(values, self.weight).softmax(-1)


class TwoModules(NeuralNet):
    """A net with a second module, a criterion that learns, and an optimizer for each module."""

    def initialize_module(self) -> TwoModules:
        super().initialize_module()
        self.teacher_ = self.initialized_instance(self.teacher, self.get_params_for("teacher"))
        return self

    def initialize_optimizer(self) -> TwoModules:
        self.optimizer_ = torch.optim.Adam([*self.module_.parameters(), *self.criterion_.parameters()], lr=self.lr)
        self.slow_optimizer_ = torch.optim.SGD(self.teacher_.parameters(), lr=self.lr / 10, momentum=0.9)
        return self

    def infer(self, x: torch.Tensor, **fit_params: Any) -> torch.Tensor:
        return self.module_(x) + self.teacher_(x)


class LearningCriterion(nn.Module):
    """A loss with a parameter."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(1.5))

    def forward(self, scores: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return nn.functional.cross_entropy(scores * self.scale, labels) + self.scale**2


def make_net(callbacks: Any = None, *, module: Any = Layers, epochs: int = 2, **options: Any) -> NeuralNetClassifier:
    """Return a classifier that is always the same before it is trained."""
    torch.manual_seed(0)
    defaults = {"optimizer": torch.optim.Adam, "lr": 0.05, "batch_size": 32, "verbose": 0}
    return NeuralNetClassifier(module, max_epochs=epochs, callbacks=callbacks, **(defaults | options))


def make_two(callbacks: Any = None, *, epochs: int = 2, **options: Any) -> TwoModules:
    """Return a net with custom parts."""
    torch.manual_seed(0)
    defaults = {"teacher": Layers, "lr": 0.05, "batch_size": 32, "verbose": 0}
    return TwoModules(Layers, LearningCriterion, max_epochs=epochs, callbacks=callbacks, **(defaults | options))


def parts_of(net: Any) -> dict[str, Any]:
    """Return the states of all parts by name, the history without its times, and the learning rates."""
    names = (*net._modules, *net._criteria, *net._optimizers)
    parts = {name: getattr(net, f"{name}_").state_dict() for name in names}
    history = [{key: value for key, value in row.items() if key != "dur"} for row in net.history]
    return {**parts, "history": history}


def same(one: Any, other: Any) -> bool:
    """Say whether two nested values are equal to the last bit."""
    if isinstance(one, torch.Tensor):
        return isinstance(other, torch.Tensor) and one.dtype == other.dtype and torch.equal(one, other)
    if isinstance(one, dict):
        return isinstance(other, dict) and one.keys() == other.keys() and all(same(one[k], other[k]) for k in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other)

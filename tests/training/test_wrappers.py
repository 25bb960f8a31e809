"""Optimizers and schedulers that another library wraps: what is checked is what is in the wrapper."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from accelerate import Accelerator
from torch import nn, optim
from torch.optim import lr_scheduler as lr

from tensorkeep.errors import StateDictMismatchError
from tensorkeep.torch import capture, restore


def parameters() -> list[nn.Parameter]:
    return [nn.Parameter(torch.rand(3, 4)), nn.Parameter(torch.rand(4, 3))]


def stepped(optimizer: Any) -> Any:
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    return optimizer


def wrapped(*objects: Any) -> Any:
    return Accelerator(cpu=True).prepare(*objects)


def refused(match: str, state: Any, **targets: Any) -> None:
    before = {name: str(target.state_dict()) for name, target in targets.items()}
    with pytest.raises(StateDictMismatchError, match=match):
        restore(state, rng=False, **targets)
    assert {name: str(target.state_dict()) for name, target in targets.items()} == before


@pytest.mark.parametrize("other", [optim.SGD, optim.Adam, optim.RMSprop, optim.Adagrad])
def test_the_state_of_another_optimizer_is_refused(other: Any) -> None:
    state = capture(optimizer=stepped(wrapped(optim.AdamW(parameters()))), rng=False)

    refused(f"does not fit {other.__name__}", state, optimizer=wrapped(other(parameters())))


def test_moments_of_other_shapes_are_refused() -> None:
    """A fused step would write past the end of them."""
    state = capture(optimizer=stepped(wrapped(optim.AdamW(parameters(), fused=True))), rng=False)

    refused("of shape", state, optimizer=wrapped(optim.AdamW(parameters()[::-1], fused=True)))


def test_parameters_of_other_names_are_refused() -> None:
    first, second = (nn.Parameter(torch.rand(2)) for _ in range(2))
    state = capture(optimizer=stepped(wrapped(optim.AdamW([("a", first), ("b", second)]))), rng=False)

    refused("in another order", state, optimizer=wrapped(optim.AdamW([("b", second), ("a", first)])))


def test_the_state_of_another_scheduler_is_refused() -> None:
    optimizer = optim.SGD(parameters())
    state = capture(scheduler=wrapped(optimizer, lr.CosineAnnealingLR(optimizer, 9))[1], rng=False)

    refused("another kind of scheduler than StepLR", state, scheduler=wrapped(optimizer, lr.StepLR(optimizer, 3))[1])


class FullMoments(optim.Optimizer):
    """An optimizer of somebody else, which keeps numbers of another dtype than its parameters."""

    def __init__(self, params: Any) -> None:
        super().__init__(params, {})

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for parameter in group["params"]:
                self.state[parameter]["moment"] = torch.ones(3, dtype=torch.float32)


def test_what_is_wrapped_gets_the_dtypes_that_it_had() -> None:
    state = capture(optimizer=stepped(FullMoments([nn.Parameter(torch.rand(3).bfloat16())])), rng=False)
    optimizer = wrapped(FullMoments([nn.Parameter(torch.rand(3).bfloat16())]))

    restore(state, optimizer=optimizer, rng=False)

    assert [each["moment"].dtype for each in optimizer.state.values()] == [torch.float32]


class WithSlowWeights(optim.Optimizer):
    """A wrapper with a state of its own, of which nothing is known."""

    def __init__(self, optimizer: optim.Optimizer) -> None:
        super().__init__(optimizer.param_groups, {})
        self.optimizer = optimizer

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for parameter in group["params"]:
                self.state[parameter]["exp_avg"] = torch.ones(1)


def test_a_wrapper_with_a_state_of_its_own_is_left_to_itself() -> None:
    state = capture(optimizer=stepped(WithSlowWeights(optim.SGD(parameters()))), rng=False)
    optimizer = WithSlowWeights(optim.SGD(parameters()))

    restore(state, optimizer=optimizer, rng=False)

    assert [each["exp_avg"].shape for each in optimizer.state.values()] == [(1,), (1,)]

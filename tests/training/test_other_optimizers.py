"""States of other optimizers and schedulers, which torch would take: refused before anything is changed."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn, optim
from torch.optim import lr_scheduler as lr

from tensorkeep.errors import StateDictMismatchError
from tensorkeep.torch import capture, restore
from tests.support.for_each import for_each
from tests.support.training_run import RECIPES, Run

_Make = Callable[[Any], optim.Optimizer]


def parameters(*shapes: tuple[int, ...]) -> list[nn.Parameter]:
    return [nn.Parameter(torch.rand(shape)) for shape in shapes or ((3, 4), (4, 3))]


def stepped(optimizer: optim.Optimizer) -> optim.Optimizer:
    def loss() -> torch.Tensor:
        optimizer.zero_grad()
        total = sum((p**2).sum() for group in optimizer.param_groups for p in group["params"])
        total.backward()
        return total

    optimizer.step(loss)
    return optimizer


def state_of(optimizer: optim.Optimizer) -> dict[str, Any]:
    return {"optimizer": stepped(optimizer).state_dict()}


def refused(state: dict[str, Any], optimizer: optim.Optimizer, match: str) -> None:
    before = str(optimizer.state_dict())
    with pytest.raises(StateDictMismatchError, match=match):
        restore(state, optimizer=optimizer, rng=False)
    assert str(optimizer.state_dict()) == before


CLASSES = [
    optim.Adadelta,
    optim.Adafactor,
    optim.Adagrad,
    optim.Adam,
    optim.AdamW,
    optim.Adamax,
    optim.ASGD,
    optim.Muon,
    optim.NAdam,
    optim.RAdam,
    optim.RMSprop,
    optim.Rprop,
    lambda p: optim.SGD(p, momentum=0.9),
]


@for_each(("first", "second"), itertools.permutations(CLASSES, 2))
def test_the_state_of_another_class_is_refused(first: _Make, second: _Make) -> None:
    refused(state_of(first(parameters())), second(parameters()), "optimizer does not fit")


@pytest.mark.parametrize("make", CLASSES)
def test_moments_of_other_shapes_are_refused(make: _Make) -> None:
    state = state_of(make(parameters((3, 4), (5, 2))))

    refused(state, make(parameters((5, 2), (3, 4))), r"optimizer does not fit .*optimizer\.state\.0\.\w+ of shape")


def test_strict_off_takes_what_torch_takes() -> None:
    adam = optim.Adam(parameters())

    restore(state_of(optim.AdamW(parameters(), weight_decay=0.1)), optimizer=adam, rng=False, strict=False)

    assert adam.param_groups[0]["weight_decay"] == 0.1


def test_other_settings_of_the_same_class_are_those_of_the_checkpoint() -> None:
    state = state_of(optim.Adam(parameters(), 0.5, amsgrad=True, foreach=True))
    adam = optim.Adam(parameters(), fused=True)

    restore(state, optimizer=adam, rng=False)

    assert adam.param_groups[0]["lr"] == 0.5
    assert "max_exp_avg_sq" in next(iter(adam.state.values()))


def test_states_of_older_versions_lack_what_torch_adds() -> None:
    state = state_of(optim.AdamW(parameters()))
    for key in ("foreach", "maximize", "capturable", "differentiable", "fused", "decoupled_weight_decay"):
        del state["optimizer"]["param_groups"][0][key]
    adamw = optim.AdamW(parameters())

    restore(state, optimizer=adamw, rng=False)

    assert adamw.state
    stepped(adamw)


def test_keys_of_schedulers_and_of_the_caller_may_differ() -> None:
    first = optim.SGD([{"params": parameters(), "name": "body"}], 0.1, momentum=0.9)
    lr.OneCycleLR(first, 0.1, 10)
    second = optim.SGD(parameters(), 0.2, momentum=0.9)

    restore(state_of(first), optimizer=second, rng=False)

    assert second.param_groups[0]["name"] == "body"


def named(*names: str) -> list[tuple[str, nn.Parameter]]:
    return list(zip(names, parameters(*[(2, 2)] * len(names)), strict=True))


def test_parameters_in_another_order_are_found_by_their_names() -> None:
    state = state_of(optim.Adam(named("a.weight", "b.weight")))

    refused(state, optim.Adam(named("b.weight", "a.weight")), r"in another order.*b\.weight.*a\.weight in its place")


@pytest.mark.parametrize(
    "saved", [("module.a", "module.b"), ("_orig_mod.a", "b"), ("module._orig_mod.a", "module.b")]
)
def test_names_of_wrapped_models_are_the_same(saved: tuple[str, str]) -> None:
    adam = optim.Adam(named("a", "b"))

    restore(state_of(optim.Adam(named(*saved))), optimizer=adam, rng=False)

    assert len(adam.state) == 2


class LowRank(optim.Optimizer):
    """An optimizer of somebody else: moments of another shape, settings of its own."""

    def __init__(self, params: Any, lr: float = 0.1, rank: int = 1) -> None:
        super().__init__(params, {"lr": lr, "rank": rank})

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for parameter in group["params"]:
                self.state[parameter]["exp_avg"] = torch.ones(group["rank"])


def test_what_others_keep_is_left_to_them() -> None:
    optimizer = LowRank(parameters())

    restore(state_of(LowRank(parameters(), rank=3)), optimizer=optimizer, rng=False)
    assert next(iter(optimizer.state.values()))["exp_avg"].shape == (3,)

    refused(
        state_of(optim.Adagrad(parameters())),
        optim.SGD(parameters()),
        r"expected settings dampening, .*, weight_decay, found eps, .* in optimizer\.param_groups\.0",
    )


def test_an_optimizer_that_loads_in_its_own_way_does_so() -> None:
    optimizer = optim.SGD(parameters(), momentum=0.9)

    @optimizer.register_load_state_dict_pre_hook
    def from_adam(_: Any, state: dict[str, Any]) -> dict[str, Any]:
        return optimizer.state_dict()

    restore(state_of(optim.Adam(parameters())), optimizer=optimizer, rng=False)

    assert not optimizer.state


@pytest.mark.parametrize("saved", [{"state": {}, "param_groups": [3]}, {"state": {}, "param_groups": None}])
def test_what_only_looks_like_a_state_is_refused(saved: Any) -> None:
    refused({"optimizer": saved}, optim.SGD(parameters()), "is not the state of an optimizer of torch")


SCHEDULERS = {type(scheduler): scheduler for scheduler in (Run(recipe, 0).scheduler for recipe in RECIPES)}
ALIKE = {lr.LambdaLR, lr.MultiplicativeLR}


@for_each(("first", "second"), itertools.permutations(SCHEDULERS, 2))
def test_the_state_of_another_scheduler_is_refused(first: type, second: type) -> None:
    state = capture(scheduler=SCHEDULERS[first], rng=False)
    before = str(SCHEDULERS[second].state_dict())
    if {first, second} <= ALIKE:
        restore(state, scheduler=SCHEDULERS[second], rng=False)  # nothing tells them apart
        return

    with pytest.raises(StateDictMismatchError, match=f"of another kind of scheduler than {second.__name__}"):
        restore(state, scheduler=SCHEDULERS[second], rng=False)

    assert str(SCHEDULERS[second].state_dict()) == before

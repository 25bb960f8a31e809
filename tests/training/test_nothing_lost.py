"""What torch would cut, mix up or share without a word: refused, or kept as it was."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn, optim
from torch.optim import lr_scheduler as lr

import tensorkeep
from tensorkeep.errors import StateDictMismatchError
from tensorkeep.torch import capture, restore


class Held(nn.Module):
    """A module with one buffer."""

    def __init__(self, value: Any, dtype: torch.dtype) -> None:
        super().__init__()
        self.register_buffer("held", torch.full((3,), value, dtype=dtype))


@pytest.mark.parametrize(
    ("value", "saved", "own"),
    [
        (1 + 2j, torch.complex64, torch.float32),
        (1.75, torch.float32, torch.int64),
        (300.0, torch.bfloat16, torch.uint8),
        (3, torch.int64, torch.bool),
    ],
)
def test_numbers_that_would_be_cut_are_refused(value: Any, saved: torch.dtype, own: torch.dtype) -> None:
    target = Held(0, own)

    with pytest.raises(StateDictMismatchError, match=rf"lose values: `held` {own} in the model, {saved} saved"):
        restore(capture(model=Held(value, saved), rng=False), model=target, rng=False)

    assert not target.held.any()


@pytest.mark.parametrize("own", [torch.float64, torch.bfloat16, torch.complex64])
def test_more_or_fewer_digits_are_the_choice_of_the_model(own: torch.dtype) -> None:
    target = Held(0, own)

    restore(capture(model=Held(1.5, torch.float32), rng=False), model=target, rng=False)

    assert target.held.tolist() == [1.5, 1.5, 1.5]


def test_a_state_that_went_on_with_the_model_is_no_way_back() -> None:
    model = nn.Linear(2, 2)
    best = capture(model=model)
    kept = copy.deepcopy(best)
    with torch.no_grad():
        model.weight.add_(1)

    with pytest.raises(
        StateDictMismatchError, match=r"`weight` of model is the tensor of the model itself.*deepcopy"
    ):
        restore(best, model=model)

    restore(kept, model=model)
    assert torch.equal(model.weight, kept["model"]["weight"])


class Precise(optim.Optimizer):
    """An optimizer that keeps more digits of its moments than parameters have, and counts in integers."""

    def __init__(self, params: Any, lr: float = 0.1) -> None:
        super().__init__(params, {"lr": lr})

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for parameter in self.param_groups[0]["params"]:
            state = self.state[parameter]
            state["n_seen"] = state.get("n_seen", torch.zeros((), dtype=torch.int64)) + 2**60 + 1
            state["moment"] = state.get("moment", torch.zeros(parameter.shape)) + torch.rand(parameter.shape)


def test_moments_have_the_digits_that_they_had(tmp_path: Path) -> None:
    model = nn.Linear(3, 3).to(torch.bfloat16)
    optimizer, other = Precise(model.parameters()), Precise(model.parameters())
    optimizer.step()
    tensorkeep.save(capture(optimizer=optimizer), tmp_path / "s.safetensors")

    restore(tmp_path / "s.safetensors", optimizer=other)

    for parameter, state in optimizer.state.items():
        assert all(torch.equal(other.state[parameter][name], tensor) for name, tensor in state.items())
        assert other.state[parameter]["moment"].dtype == torch.float32

    restore(tmp_path / "s.safetensors", optimizer=other, strict=False)
    assert {state["moment"].dtype for state in other.state.values()} == {torch.bfloat16}, "as torch loads it"


def test_moments_of_torchs_optimizers_are_of_the_dtype_of_their_parameters() -> None:
    models = [nn.Linear(3, 3), nn.Linear(3, 3).to(torch.bfloat16)]
    first, second = (optim.Adam(model.parameters()) for model in models)
    models[0](torch.rand(2, 3)).sum().backward()
    first.step()

    restore(capture(optimizer=first, rng=False), optimizer=second, rng=False)

    models[1](torch.rand(2, 3, dtype=torch.bfloat16)).sum().backward()
    second.step()
    assert {state["exp_avg"].dtype for state in second.state.values()} == {torch.bfloat16}


class Order:
    """A loader that has its order in an array."""

    def __init__(self, order: Any = None) -> None:
        self.order = order

    def state_dict(self) -> dict[str, Any]:
        return {"order": self.order}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.order = state["order"]


def test_arrays_of_objects_are_in_memory_of_their_own(tmp_path: Path) -> None:
    order = np.arange(600_000).reshape(2, -1).T
    tensorkeep.save(capture(loader=Order(order)), tmp_path / "s.safetensors")
    loader = Order()

    restore(tmp_path / "s.safetensors", loader=loader)

    assert np.array_equal(loader.order, order)
    assert loader.order.flags.f_contiguous
    assert loader.order.base is None

    state = tensorkeep.load(tmp_path / "s.safetensors")
    restore(state, loader=loader)
    loader.order[:] = 0
    assert np.array_equal(state["loader"]["order"], order)


def in_turn(*makers: Any) -> lr.SequentialLR:
    optimizer = optim.SGD([nn.Parameter(torch.ones(1))], 0.1)
    return lr.SequentialLR(optimizer, [make(optimizer) for make in makers], [2] * (len(makers) - 1))


def stepwise(optimizer: optim.Optimizer) -> lr.StepLR:
    return lr.StepLR(optimizer, 3)


def cosine(optimizer: optim.Optimizer) -> lr.CosineAnnealingLR:
    return lr.CosineAnnealingLR(optimizer, 3)


@pytest.mark.parametrize(
    ("own", "match"),
    [
        ([lr.LinearLR, cosine], r"scheduler\.1 is the state of another kind of scheduler than CosineAnnealingLR"),
        ([lr.LinearLR], "expected states of 1 schedulers, found 2"),
        ([lr.LinearLR, stepwise, cosine], "expected states of 3 schedulers, found 2"),
    ],
)
def test_schedulers_within_schedulers_are_held_against_their_own(own: Any, match: str) -> None:
    scheduler = in_turn(*own)
    before = str(scheduler.state_dict())

    with pytest.raises(StateDictMismatchError, match=match):
        restore(capture(scheduler=in_turn(lr.LinearLR, stepwise), rng=False), scheduler=scheduler, rng=False)

    assert str(scheduler.state_dict()) == before


def test_how_weights_decay_is_a_setting_of_nadam() -> None:
    first, second = (
        optim.NAdam([nn.Parameter(torch.ones(1))], decoupled_weight_decay=is_so) for is_so in (True, False)
    )

    restore(capture(optimizer=first, rng=False), optimizer=second, rng=False)

    assert second.param_groups[0]["decoupled_weight_decay"] is True


class Coder(nn.Module):
    """An autoencoder, whose decoder may be its encoder transposed."""

    def __init__(self, *, is_tied: bool) -> None:
        super().__init__()
        self.encoder = nn.Parameter(torch.rand(3, 2))
        self.decoder = nn.Parameter(self.encoder.data.t() if is_tied else torch.rand(2, 3))


def test_a_weight_may_be_tied_to_its_transpose() -> None:
    tied, other = Coder(is_tied=True), Coder(is_tied=True)
    before = copy.deepcopy(tied.state_dict())

    with pytest.raises(StateDictMismatchError, match="ties `encoder` to `decoder`"):
        restore(capture(model=Coder(is_tied=False), rng=False), model=tied, rng=False)
    assert torch.equal(tied.encoder, before["encoder"])

    restore(capture(model=other, rng=False), model=tied, rng=False)
    assert torch.equal(tied.decoder.t(), other.encoder)

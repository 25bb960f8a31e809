"""What `capture` takes: every part under its name, and a model under the names that it has without wrappers."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import tensorkeep
from tensorkeep.errors import StateError
from tensorkeep.torch import capture


class Counter:
    """What a loader with a state is like."""

    def __init__(self) -> None:
        self.n_seen = 0

    def state_dict(self) -> dict[str, Any]:
        return {"n_seen": self.n_seen}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.n_seen = state["n_seen"]


class Wrapped(nn.Module):
    """A model of which one module is compiled."""

    def __init__(self, norm: nn.Module) -> None:
        super().__init__()
        self.norm = norm
        self.head = nn.Linear(3, 2)


def test_only_what_is_given_is_in_it() -> None:
    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters())

    assert capture(rng=False) == {}
    assert list(capture(model=model)) == ["model", "rng"]
    assert list(capture(optimizer=optimizer, model=model, step=3, rng=False)) == ["model", "optimizer", "step"]


def test_the_tensors_are_those_of_the_model() -> None:
    model = nn.Linear(2, 1)

    state = capture(model=model)

    assert state["model"]["weight"].data_ptr() == model.weight.data_ptr()


def test_several_objects_are_captured_as_they_are_given() -> None:
    generator, critic = nn.Linear(2, 1), nn.Linear(1, 2)
    optimizers = [torch.optim.Adam(model.parameters()) for model in (generator, critic)]

    state = capture(model={"g": generator, "d": critic}, optimizer=optimizers, scheduler=(), rng=False)

    assert {key: list(value) for key, value in state["model"].items()} == {key: ["weight", "bias"] for key in "gd"}
    assert [list(item) for item in state["optimizer"]] == [["state", "param_groups"]] * 2
    assert state["scheduler"] == []


def test_extra_values_are_captured_by_their_state_or_as_they_are() -> None:
    counter = Counter()
    counter.n_seen = 7
    config = {"lr": 0.1}

    state = capture(rng=False, loader=counter, average=nn.Linear(1, 1), config=config)

    assert state["loader"] == {"n_seen": 7}
    assert list(state["average"]) == ["weight", "bias"]
    assert state["config"] is config


def test_generators_do_not_go_on_in_what_was_captured() -> None:
    generators = {"t": torch.Generator(), "n": np.random.default_rng(1), "o": np.random.RandomState(1)}
    state = capture(rng=False, **generators, p=random.Random(3))
    before = [state["t"].get_state().clone(), str(state["n"].bit_generator.state), str(state["o"].get_state())]

    torch.rand(3, generator=generators["t"])
    generators["n"].random(3)
    generators["o"].random_sample(1000)

    assert torch.equal(state["t"].get_state(), before[0])
    assert [str(state["n"].bit_generator.state), str(state["o"].get_state())] == before[1:]
    assert tuple(state["p"]["words"].tolist()) == random.Random(3).getstate()[1]


def test_the_generators_of_the_process_are_captured() -> None:
    state = capture()

    assert {"python", "numpy", "torch"} <= state["rng"].keys()
    assert state["rng"]["python"]["words"].tolist() == list(random.getstate()[1])
    assert torch.equal(state["rng"]["torch"], torch.get_rng_state())
    assert str(state["rng"]["numpy"].get_state()) == str(np.random.get_state())
    assert ("cuda" in state["rng"]) == torch.cuda.is_initialized()


@pytest.mark.parametrize(
    "wrap", [torch.compile, nn.DataParallel, lambda model: torch.compile(nn.DataParallel(model))]
)
def test_a_wrapped_model_has_the_names_of_what_is_wrapped(wrap: Any) -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))

    state = capture(model=wrap(model), rng=False)["model"]

    assert list(state) == list(model.state_dict())
    assert state._metadata == model.state_dict()._metadata


def test_a_compiled_module_within_a_model_leaves_no_mark() -> None:
    plain = Wrapped(nn.BatchNorm1d(3))

    state = capture(model=Wrapped(torch.compile(nn.BatchNorm1d(3))), rng=False)["model"]

    assert list(state) == list(plain.state_dict())
    assert state._metadata == plain.state_dict()._metadata


@pytest.mark.parametrize(("part", "value"), [("model", 3), ("optimizer", {"a": "adam"}), ("scheduler", nn.Linear)])
def test_a_part_without_a_state_is_refused(part: str, value: Any) -> None:
    with pytest.raises(StateError, match=f"'{part}.* has no state to capture"):
        capture(**{part: value})


def test_saving_says_where_something_is_no_data(tmp_path: Path) -> None:
    class Warmup:
        """A scheduler that keeps a function in its state."""

        def state_dict(self) -> dict[str, Any]:
            return {"curve": [abs]}

    with pytest.raises(StateError, match=r"'scheduler\.curve\.0' is not data.*A function is not data"):
        tensorkeep.save(capture(scheduler=Warmup()), tmp_path / "state.safetensors")

    assert list(tmp_path.iterdir()) == []


def test_of_a_loader_the_generator_is_captured() -> None:
    loader = torch.utils.data.DataLoader([1, 2, 3], shuffle=True, generator=torch.Generator())

    with pytest.raises(StateError, match=r"a DataLoader has no state to capture.*DataLoader\.generator"):
        capture(loader=loader)

    assert list(capture(shuffling=loader.generator, rng=False)) == ["shuffling"]

"""A run that was saved and loaded goes on to the last bit as one that was never interrupted."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import accelerate
import pytest
import torch

from tensorkeep.integrations.accelerate import IncompleteStateWarning, keep_safe
from tests.support.integrations.accelerate.runs import N_BATCHES, Run, everything, make_run, same, theirs, train

CONFIGURATIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "accumulating": {"gradient_accumulation_steps": 2},
    "bf16": {"mixed_precision": "bf16"},
    "generator": {"generator": True},
}


@pytest.mark.parametrize(
    ("name", "batch"), [*((name, 3) for name in CONFIGURATIONS), ("plain", 0), ("plain", N_BATCHES - 1)]
)
def test_amid_an_epoch(tmp_path: Path, name: str, batch: int) -> None:
    configuration = CONFIGURATIONS[name]
    run = make_run(0, **configuration)
    whole, expected = train(run, range(4)), everything(run)
    first = train(make_run(0, **configuration), range(4), save_after=(1, batch), path=tmp_path / "state")

    run = make_run(5, **configuration)
    run.accelerator.load_state(tmp_path / "state")
    rest = train(run, range(1, 4), skip=batch + 1)

    assert first + rest == whole
    assert same(everything(run), expected)


@pytest.mark.parametrize("seedable", [True, False])
@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_between_epochs(tmp_path: Path, name: str, seedable: bool) -> None:
    configuration = CONFIGURATIONS[name] | {"seedable": seedable}
    run = make_run(0, **configuration)
    whole, expected = train(run, range(4)), everything(run)
    run = make_run(0, **configuration)
    first = train(run, range(2))
    run.accelerator.save_state(tmp_path / "state")

    run = make_run(5, **configuration)
    run.accelerator.load_state(tmp_path / "state")
    rest = train(run, range(2, 4))

    assert first + rest == whole
    assert same(everything(run), expected)


def test_after_the_last_batch_the_next_epoch_comes(tmp_path: Path) -> None:
    whole = train(make_run(0), range(4))
    first = train(make_run(0), range(4), save_after=(1, N_BATCHES - 1), path=tmp_path / "state")

    run = make_run(5)
    run.accelerator.load_state(tmp_path / "state")

    assert first + train(run, range(2, 4)) == whole


def test_twice_amid_the_same_epoch(tmp_path: Path) -> None:
    whole = train(make_run(0), range(3))
    first = train(make_run(0), range(3), save_after=(1, 0), path=tmp_path / "state")
    run = make_run(5)
    run.accelerator.load_state(tmp_path / "state")
    second = train(run, range(1, 3), skip=1, save_after=(1, 1), path=tmp_path / "state")

    run = make_run(6)
    run.accelerator.load_state(tmp_path / "state")
    rest = train(run, range(1, 3), skip=3)

    assert first + second + rest == whole


def test_an_accelerator_that_somebody_else_made(tmp_path: Path) -> None:
    whole = train(make_run(0), range(3))
    run = theirs(0)
    assert keep_safe(run.accelerator) is run.accelerator
    first = train(run, range(3), save_after=(1, 2), path=tmp_path / "state")

    run = theirs(5)
    keep_safe(run.accelerator).load_state(tmp_path / "state")

    assert first + train(run, range(1, 3), skip=3) == whole
    assert {path.suffix for path in tmp_path.rglob("*") if path.is_file()} == {".safetensors", ".json"}


class Tied(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Linear(4, 4)
        self.second = torch.nn.Linear(4, 4)
        self.second.weight = self.first.weight
        self.last = torch.nn.Linear(4, 1)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.last(self.second(self.first(inputs).relu()))


def test_tied_weights_stay_tied(tmp_path: Path) -> None:
    run = make_run(0, model=Tied())
    train(run, range(1))
    run.accelerator.save_state(tmp_path / "state")
    expected = run.model.first.weight.detach().clone()

    run = make_run(5, model=Tied())
    run.accelerator.load_state(tmp_path / "state")

    assert run.model.first.weight is run.model.second.weight
    assert torch.equal(run.model.first.weight, expected)


def test_several_objects_of_each_kind(tmp_path: Path) -> None:
    def more(seed: int) -> tuple[Run, list[Any]]:
        run = make_run(seed)
        model = torch.nn.Linear(3, 3)
        optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
        objects = run.accelerator.prepare(model, optimizer, torch.optim.lr_scheduler.StepLR(optimizer, 1))
        run.accelerator.scaler = torch.amp.GradScaler("cpu", init_scale=2.0**seed)
        run.accelerator.scaler.scale(torch.zeros(1))
        objects[0](torch.ones(3)).sum().backward()
        objects[1].step()
        objects[2].step()
        average = torch.optim.swa_utils.AveragedModel(model)
        run.accelerator.register_for_checkpointing(average)
        return run, [*objects, average, run.accelerator.scaler]

    run, objects = more(3)
    run.accelerator.save_state(tmp_path / "state")
    other, restored = more(4)
    other.accelerator.load_state(tmp_path / "state")

    for one, another in zip(objects, restored, strict=True):
        assert same(dict(one.state_dict()), dict(another.state_dict()))
    names = {path.name for path in tmp_path.joinpath("state").iterdir()}
    assert {"model_1.safetensors", "optimizer_1.safetensors", "scheduler_1.safetensors"} < names
    assert {"scaler.safetensors", "custom_checkpoint_1.safetensors", "process_0.safetensors"} < names


def test_a_compiled_model_is_saved_under_its_own_names(tmp_path: Path) -> None:
    run = make_run(0)
    run.accelerator._models[0] = torch.compile(run.model)
    run.accelerator.save_state(tmp_path / "state")
    expected = run.model[0].weight.detach().clone()

    run = make_run(5)
    run.accelerator.load_state(tmp_path / "state")

    assert torch.equal(run.model[0].weight, expected)


def test_what_cannot_go_on_exactly_is_said(tmp_path: Path) -> None:
    with pytest.warns(IncompleteStateWarning, match="use_seedable_sampler"):
        train(make_run(0, seedable=False), range(1), save_after=(0, 1), path=tmp_path / "state")
    run = make_run(0, gradient_accumulation_steps=2)
    with pytest.warns(IncompleteStateWarning, match="gradients are being accumulated"):
        train(run, range(1), save_after=(0, 2), path=tmp_path / "state")
    with warnings.catch_warnings():
        warnings.simplefilter("error", IncompleteStateWarning)
        train(make_run(0), range(1), save_after=(0, 1), path=tmp_path / "state")
        run = make_run(0, gradient_accumulation_steps=2, seedable=False)
        train(run, range(1))
        run.accelerator.save_state(tmp_path / "state")


def test_the_rest_of_an_epoch_draws_nothing() -> None:
    run = make_run(0)
    before = torch.get_rng_state()

    rest = list(run.accelerator.skip_first_batches(run.loader, 4))

    assert len(rest) == N_BATCHES - 4
    assert torch.equal(torch.get_rng_state(), before)
    assert run.loader.iteration == 1
    assert isinstance(run.accelerator, accelerate.Accelerator)

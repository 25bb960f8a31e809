"""What accelerate saved itself is loaded, and nothing of it is run."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import torch
from accelerate.utils import save

from tensorkeep.checkpoint import verify_folder
from tensorkeep.errors import FormatError, IntegrityError, SourceMissingError, StateDictMismatchError, UnsafeError
from tensorkeep.integrations.accelerate import DamagedCheckpointWarning
from tests.integrations.accelerate.test_resume import Tied
from tests.support.integrations.accelerate.runs import everything, make_run, same, theirs, train


@pytest.mark.parametrize("safe", [True, False])
@pytest.mark.parametrize("tied", [True, False])
def test_a_run_goes_on_where_accelerate_saved_it(tmp_path: Path, safe: bool, tied: bool) -> None:
    def make_model() -> torch.nn.Module | None:
        torch.manual_seed(0)
        return Tied() if tied else None

    run = theirs(0, seedable=False, model=make_model())
    whole, expected = train(run, range(3)), everything(run)
    run = theirs(0, seedable=False, model=make_model())
    first = train(run, range(1))
    run.accelerator.save_state(tmp_path / "old", safe_serialization=safe)

    run = make_run(5, seedable=False, model=make_model())
    run.accelerator.load_state(tmp_path / "old")

    assert first + train(run, range(1, 3)) == whole
    assert same(everything(run), expected)


def test_the_next_save_replaces_what_accelerate_saved(tmp_path: Path) -> None:
    theirs(0).accelerator.save_state(tmp_path / "state")
    assert (tmp_path / "state" / "optimizer.bin").exists()
    run = make_run(1)
    run.accelerator.load_state(tmp_path / "state")

    run.accelerator.save_state(tmp_path / "state")

    assert {path.suffix for path in tmp_path.joinpath("state").iterdir()} == {".safetensors", ".json"}
    assert verify_folder(tmp_path / "state") == []


def test_a_seedable_sampler_that_was_pickled_whole(tmp_path: Path) -> None:
    run = theirs(3)
    run.accelerator.save_state(tmp_path / "old")
    sampler = run.loader.get_sampler()
    sampler.epoch = 5
    save(sampler, tmp_path / "old" / "sampler.bin")  # as versions before 1.0 did

    run = make_run(4)
    run.accelerator.load_state(tmp_path / "old")

    assert run.loader.get_sampler().initial_seed == sampler.initial_seed == 3
    assert run.loader.get_sampler().epoch == 5


def test_a_scaler(tmp_path: Path) -> None:
    run = theirs(0)
    run.accelerator.scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
    run.accelerator.scaler.scale(torch.zeros(1))
    run.accelerator.save_state(tmp_path / "old")
    assert (tmp_path / "old" / "scaler.pt").exists()

    run = make_run(1)
    run.accelerator.scaler = torch.amp.GradScaler("cpu", init_scale=2.0)
    run.accelerator.load_state(tmp_path / "old")

    assert run.accelerator.scaler.get_scale() == 8.0


class Payload:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.path),)


@pytest.mark.parametrize(
    "name", ["optimizer.bin", "scheduler.bin", "custom_checkpoint_0.pkl", "random_states_0.pkl", "sampler.bin"]
)
def test_nothing_is_run(tmp_path: Path, name: str) -> None:
    run = theirs(0)
    run.accelerator.save_state(tmp_path / "old")
    torch.save({"state": Payload(tmp_path / "was run"), "param_groups": []}, tmp_path / "old" / name)
    run = make_run(1)
    before = everything(run)

    with pytest.raises(FormatError if name == "sampler.bin" else UnsafeError):
        run.accelerator.load_state(tmp_path / "old")

    assert not (tmp_path / "was run").exists()
    assert same(everything(run), before)


@pytest.mark.parametrize("name", ["optimizer.bin", "scheduler.bin", "custom_checkpoint_0.pkl", "random_states_0.pkl"])
def test_an_interrupted_save_of_accelerate_is_none(tmp_path: Path, name: str) -> None:
    run = theirs(0, project=tmp_path)
    run.accelerator.save_state()
    expected = everything(run)
    train(run, range(1))
    run.accelerator.save_state()
    newest = tmp_path / "checkpoints" / "checkpoint_1"
    newest.joinpath(name).unlink()

    run = make_run(1, project=tmp_path)
    with pytest.raises(SourceMissingError, match="not a complete state"):
        run.accelerator.load_state(newest)
    with pytest.warns(DamagedCheckpointWarning, match="checkpoint_1 is damaged"):
        run.accelerator.load_state()

    assert same(everything(run)["model"], expected["model"])
    assert run.accelerator.save_state().name == "checkpoint_2"


def test_a_flipped_bit_in_a_pickle_is_found(tmp_path: Path) -> None:
    run = theirs(0)
    train(run, range(1))
    run.accelerator.save_state(tmp_path / "old")
    path = tmp_path / "old" / "optimizer.bin"
    content = bytearray(path.read_bytes())
    moment = run.optimizer.state_dict()["state"][0]["exp_avg"].numpy().tobytes()
    content[content.index(moment)] ^= 1
    path.write_bytes(content)

    with pytest.raises(IntegrityError):
        make_run(1).accelerator.load_state(tmp_path / "old")


def test_random_states_that_are_none(tmp_path: Path) -> None:
    theirs(0).accelerator.save_state(tmp_path / "old")
    for states in (
        {},
        [1],
        {"random_state": 1},
        {"random_state": (3, (1,), None), "numpy_random_seed": ("MT19937",)},
    ):
        torch.save(states, tmp_path / "old" / "random_states_0.pkl")
        with pytest.raises(FormatError, match="not the states of random generators"):
            make_run(1).accelerator.load_state(tmp_path / "old")


def test_another_number_of_processes(tmp_path: Path) -> None:
    theirs(0).accelerator.save_state(tmp_path / "old")
    path = tmp_path / "old" / "random_states_0.pkl"
    path.with_name("random_states_1.pkl").write_bytes(path.read_bytes())
    run = make_run(1)

    with pytest.raises(StateDictMismatchError, match=r"expected 1 processes, found 2.*rng=False"):
        run.accelerator.load_state(tmp_path / "old")

    run.accelerator.load_state(tmp_path / "old", rng=False)

"""Checkpoints that accelerate numbers: none is replaced, and none goes before a newer one is there."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from accelerate.utils import ProjectConfiguration

from tensorkeep.checkpoint import verify_folder
from tensorkeep.errors import IntegrityError, RefusedError, SourceMissingError, StateError
from tensorkeep.integrations.accelerate import DamagedCheckpointWarning
from tests.support.integrations.accelerate.runs import NoData, everything, make_run, same, train


def test_numbered_checkpoints(tmp_path: Path) -> None:
    run = make_run(0, project=tmp_path, total_limit=2)
    folder = tmp_path / "checkpoints"
    paths = []
    for _ in range(4):
        train(run, range(1))
        paths.append(run.accelerator.save_state())

    assert [path.name for path in paths] == [f"checkpoint_{n}" for n in range(4)]
    assert sorted(os.listdir(folder)) == ["checkpoint_2", "checkpoint_3"]
    expected = everything(run)
    run = make_run(1, project=tmp_path, total_limit=2)
    run.accelerator.load_state()
    assert same(everything(run), expected)
    assert run.accelerator.save_state().name == "checkpoint_4"


def test_a_numbered_checkpoint_is_never_replaced(tmp_path: Path) -> None:
    make_run(0, project=tmp_path).accelerator.save_state()
    other = make_run(1, project=tmp_path)

    with pytest.raises(RefusedError, match=r"already has.*found checkpoint_0.*iteration = 1"):
        other.accelerator.save_state()

    other.accelerator.project_configuration.iteration = 12
    assert other.accelerator.save_state().name == "checkpoint_12"


def test_the_highest_number_is_the_newest(tmp_path: Path) -> None:
    """A run begun anew beside higher numbers would lose its own checkpoints, and go on from those of the other."""
    before = make_run(0, project=tmp_path, total_limit=2)
    for _ in range(4):
        before.accelerator.save_state()
    anew = make_run(1, project=tmp_path, total_limit=2)

    with pytest.raises(RefusedError, match=r"checkpoint_0.*found checkpoint_3.*iteration = 4"):
        anew.accelerator.save_state()

    assert sorted(os.listdir(tmp_path / "checkpoints")) == ["checkpoint_2", "checkpoint_3"]
    anew.accelerator.project_configuration.iteration = 4
    anew.accelerator.save_state()
    expected = everything(anew)
    again = make_run(2, project=tmp_path)
    again.accelerator.load_state()
    assert same(everything(again), expected)


def test_the_old_one_goes_only_when_the_new_one_is_there(tmp_path: Path) -> None:
    run = make_run(0, project=tmp_path, total_limit=1)
    run.accelerator.save_state()
    run.accelerator.register_for_checkpointing(NoData())

    with pytest.raises(StateError):
        run.accelerator.save_state()

    assert os.listdir(tmp_path / "checkpoints") == ["checkpoint_0"]
    assert verify_folder(tmp_path / "checkpoints" / "checkpoint_0") == []


def test_the_newest_whole_one_is_taken(tmp_path: Path) -> None:
    run = make_run(0, project=tmp_path)
    run.accelerator.save_state()
    expected = everything(run)
    folder = tmp_path / "checkpoints"
    for _ in range(2):
        train(run, range(1))
        run.accelerator.save_state()
    (folder / "checkpoint_2" / "optimizer.safetensors").unlink()
    model = folder / "checkpoint_1" / "model.safetensors"
    model.write_bytes(model.read_bytes()[:-1] + b"?")
    (folder / "checkpoint_7").mkdir()
    (folder / ".DS_Store").write_text("")
    (folder / "checkpoint_best").mkdir()

    run = make_run(1, project=tmp_path)
    with pytest.warns(DamagedCheckpointWarning) as warned:
        run.accelerator.load_state()

    assert same(everything(run), expected)
    said = " ".join(str(warning.message) for warning in warned)
    assert all(f"checkpoint_{n} is damaged" in said for n in (1, 2, 7))
    assert run.accelerator.save_state().name == "checkpoint_8"


def test_no_numbered_checkpoint_is_whole(tmp_path: Path) -> None:
    run = make_run(0, project=tmp_path)
    with pytest.raises(SourceMissingError, match="no checkpoint yet"):
        run.accelerator.load_state()
    path = run.accelerator.save_state() / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-1] + b"?")

    with pytest.raises(IntegrityError):
        run.accelerator.load_state()


def test_numbers_without_a_directory() -> None:
    run = make_run(0)
    run.accelerator.project_configuration = ProjectConfiguration(automatic_checkpoint_naming=True)

    with pytest.raises(RefusedError, match="the run has no directory"):
        run.accelerator.save_state()

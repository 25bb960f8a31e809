"""Programs written for orbax's CheckpointManager do the same with ours."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tensorkeep
from tests.support.integrations.orbax import manager_runs
from tests.support.integrations.orbax.manager_runs import ORBAX, OURS
from tests.support.jax.meshes.jax_processes import JaxProcesses, shared


@pytest.fixture
def alone() -> JaxProcesses:
    return shared(1)


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_training_loop_saves_and_restores_the_same_steps(
    alone: JaxProcesses, tmp_path: Path, asynchronous: bool
) -> None:
    (orbax,) = alone.run(manager_runs.train, ORBAX, str(tmp_path / "orbax"), (1, 2), asynchronous)
    (ours,) = alone.run(manager_runs.train, OURS, str(tmp_path / "ours"), (1, 2), asynchronous)

    assert ours == orbax
    assert ours["restored"] is True
    state = tensorkeep.load(tmp_path / "ours" / "step-00000011", framework="numpy")
    assert state["params"]["kernel"][0].tolist() == list(range(11, 19))


def test_best_steps_and_several_items(alone: JaxProcesses, tmp_path: Path) -> None:
    (orbax,) = alone.run(manager_runs.best, ORBAX, str(tmp_path / "orbax"))
    (ours,) = alone.run(manager_runs.best, OURS, str(tmp_path / "ours"))

    assert ours == orbax


def test_what_a_step_holds_is_described_as_by_orbax(alone: JaxProcesses, tmp_path: Path) -> None:
    (orbax,) = alone.run(manager_runs.described, ORBAX, str(tmp_path / "orbax"))
    (ours,) = alone.run(manager_runs.described, OURS, str(tmp_path / "ours"))

    assert ours == orbax


def test_descriptions_are_templates(alone: JaxProcesses, tmp_path: Path) -> None:
    (said,) = alone.run(manager_runs.restored_as_described, str(tmp_path))

    assert said == {
        "leaves": {"int4": ((2, 3), "int4"), "keys": ((2,), "key<fry>"), "loss": ((), "float64")},
        "keys": True,
        "int4": ("int4", [[1, 1, 1], [1, 1, 1]]),
        "loss": 2.5,
    }


@pytest.mark.parametrize(("n_processes", "shape"), [(1, (1, 2)), (2, (2, 2))])
def test_arrays_go_back_to_the_devices_on_which_they_were(
    n_processes: int, shape: tuple[int, int], tmp_path: Path
) -> None:
    theirs = shared(n_processes).run(manager_runs.restored_as_saved, ORBAX, str(tmp_path / "orbax"), shape)
    ours = shared(n_processes).run(manager_runs.restored_as_saved, OURS, str(tmp_path / "ours"), shape)

    assert ours == theirs
    assert all(all(said.values()) for said in ours)


def test_devices_that_are_not_here_are_left_out(alone: JaxProcesses, tmp_path: Path) -> None:
    shared(2).run(manager_runs.restored_as_saved, OURS, str(tmp_path / "run"), (2, 2))

    (devices,) = alone.run(manager_runs.restored_elsewhere, str(tmp_path / "run"))

    assert devices == [0]


def test_steps_of_orbax_are_continued(alone: JaxProcesses, tmp_path: Path) -> None:
    (said,) = alone.run(manager_runs.coming_from, str(tmp_path / "run"))

    assert said["latest"] == 3
    assert said["first"] is True
    assert said["saved"] == [False, True, True, True]
    assert said["steps"] == [2, 3, 5, 6]
    assert said["restored"] is True
    assert said["shape"] == (8, 8)
    assert said["as saved"] == 7
    assert sorted(os.listdir(tmp_path / "run" / "step-00000006"))


@pytest.mark.parametrize("names", [{"step_prefix": "ckpt"}, {"step_format_fixed_length": 6}])
def test_steps_that_orbax_named_otherwise_are_found(
    names: dict[str, Any], alone: JaxProcesses, tmp_path: Path
) -> None:
    (said,) = alone.run(manager_runs.named_by_orbax, str(tmp_path / "run"), names)

    assert said == {"latest": 7, "restored": True}


def test_what_cannot_be_done_is_said(alone: JaxProcesses, tmp_path: Path) -> None:
    (said,) = alone.run(manager_runs.refused, str(tmp_path / "run"))

    starts = [text.split(": ")[0] for text in said]
    assert starts == [
        *("SourceMissingError", "RefusedError", "UnsupportedError", "SourceMissingError"),
        *("StateDictMismatchError", "SourceMissingError", *["UnsupportedError"] * 8),
        *("StateError", *["UnsupportedError"] * 6, "AttributeError", "None"),
    ]


def test_every_argument_of_orbax_is_taken(alone: JaxProcesses) -> None:
    assert alone.run(manager_runs.signatures) == [[]]


def test_arguments_do_what_they_say(alone: JaxProcesses, tmp_path: Path) -> None:
    (said,) = alone.run(manager_runs.arguments, str(tmp_path / "run"))

    assert said.pop("leaves") == (np.ndarray, "bfloat16", 1)
    assert said == {
        "directory": True,
        "step": ({"by": "me"}, {"loss": 0.5}, "int32"),
        "run": {"run": 7},
        "run later": {"run": 7},
        "with arguments": True,
        "elsewhere": True,
        "part": ["step"],
    }


@pytest.mark.parametrize("program", [manager_runs.items, manager_runs.paths])
def test_programs_without_a_manager_or_arguments_do_the_same(
    alone: JaxProcesses, tmp_path: Path, program: Callable[[str, str], dict[str, Any]]
) -> None:
    (orbax,) = alone.run(program, ORBAX, str(tmp_path / "orbax"))
    (ours,) = alone.run(program, OURS, str(tmp_path / "ours"))

    assert ours == orbax


def test_two_processes_save_steps_together(tmp_path: Path) -> None:
    now, later = (
        shared(2).run(manager_runs.train, OURS, str(tmp_path / str(asynchronous)), (2, 2), asynchronous)
        for asynchronous in (False, True)
    )

    assert now == later
    assert now[0] == now[1]
    assert now[0]["again"] == (11, [8, 10, 11])
    assert now[0]["restored"] is True
    assert tensorkeep.verify(tmp_path / "True" / "step-00000011").is_whole


def test_all_processes_do_everything_together(tmp_path: Path) -> None:
    first, second = shared(2).run(manager_runs.together, str(tmp_path / "run"))

    for said in (first, second):
        assert said["left"] == [False] * 5
        assert said["again"] is True
        assert "rank 1: KeyError: 'loss'" in said["best_fn"] or said["best_fn"] == "KeyError: 'loss'"
        assert said["unlike"].startswith("StateError: ")
        assert said["value"] == 3
    for call in ("restored", "deleted"):  # the first process decides, and does not wait
        assert second[call].startswith("StateError: the step differs between processes")
    assert (first["path"], second["after"]) == ("None", "None")
    assert second["path"].startswith("RefusedError: there is something at this path already")
    assert first["after"].startswith("RefusedError: rank 1: there is something at this path already")


@pytest.mark.parametrize("module", [ORBAX, OURS])
def test_a_read_only_manager_deletes_nothing(alone: JaxProcesses, tmp_path: Path, module: str) -> None:
    assert alone.run(manager_runs.read_only, module, str(tmp_path / "run")) == [{"saved": False, "steps": [1]}]


def test_a_read_only_manager_says_that_it_deletes_nothing(tmp_path: Path) -> None:
    import tensorkeep.integrations.orbax as ocp

    manager = ocp.CheckpointManager(tmp_path / "run", options=ocp.CheckpointManagerOptions(read_only=True))
    with pytest.warns(UserWarning, match="the manager is read-only, so step 1 is kept"):
        manager.delete(1)


def test_what_is_at_a_url_is_replaced_only_with_force(alone: JaxProcesses) -> None:
    (said,) = alone.run(manager_runs.to_bucket, "memory://orbax")

    for first, second, third, value in (said[:4], said[4:]):
        assert (first, third, value) == ("None", "None", "3")
        assert second.startswith("RefusedError: there is something at this path already")

"""Steps that orbax saved are read with everything in them: items of all kinds, metrics and metadata."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.integrations.orbax import older_runs
from tests.support.integrations.orbax.manager_runs import ORBAX, OURS
from tests.support.jax.meshes.jax_processes import JaxProcesses, shared


@pytest.fixture
def alone() -> JaxProcesses:
    return shared(1)


def test_our_manager_says_of_orbaxs_steps_and_of_its_own_what_orbax_says(alone: JaxProcesses, tmp_path: Path) -> None:
    alone.run(older_runs.save_all_kinds, ORBAX, str(tmp_path / "theirs"))
    alone.run(older_runs.save_all_kinds, OURS, str(tmp_path / "ours"))

    (wanted,) = alone.run(older_runs.read_all_kinds, ORBAX, str(tmp_path / "theirs"))
    assert wanted["of run"] == {"run": "a"}
    assert wanted["best"] == 1
    for engine in (None, "tensorstore"):
        assert alone.run(older_runs.read_all_kinds, OURS, str(tmp_path / "theirs"), engine) == [wanted]
    assert alone.run(older_runs.read_all_kinds, OURS, str(tmp_path / "ours")) == [wanted]


def test_a_run_in_a_bucket(alone: JaxProcesses, tmp_path: Path) -> None:
    alone.run(older_runs.save_all_kinds, ORBAX, str(tmp_path / "theirs"))

    (wanted,) = alone.run(older_runs.read_all_kinds, ORBAX, str(tmp_path / "theirs"))
    assert alone.run(older_runs.read_in_bucket, str(tmp_path / "theirs"), "memory://orbax-run") == [wanted]


def test_all_items_errors_and_a_run_that_goes_on(alone: JaxProcesses, tmp_path: Path) -> None:
    alone.run(older_runs.save_all_kinds, ORBAX, str(tmp_path / "run"))

    (said,) = alone.run(older_runs.read_others, str(tmp_path / "run"))

    names = ["array", "config", "key", "numpy_key", "old_key", "state"]
    assert said["all"] == (names, {"lr": 0.5, "layers": [1, 2]}, [2, 2], "key<fry>")
    assert said["described"] == (names, "ShapeDtypeStruct(shape=(3,), dtype=float32)")
    for call in ("nameless", "unknown"):
        assert said[call].startswith("SourceMissingError: the checkpoint has other items")
        assert "found array, config, key, numpy_key, old_key, state" in said[call]
    assert "args.Composite(array=" in said["nameless"]
    assert said["unfit"].startswith("StateDictMismatchError")
    assert "w is float32 [3], not float32 [4]" in said["unfit"]
    assert (said["best of both"], said["best in the end"]) == (1, 4)
    assert said["run"] == {"run": "a"}
    assert said["steps"] == [0, 1, 2, 3, 4]


def test_one_item_is_also_the_default_and_errors_are_in_words_of_orbax(alone: JaxProcesses, tmp_path: Path) -> None:
    (said,) = alone.run(older_runs.by_default, str(tmp_path / "run"))

    assert said["default"] == [1, 1]
    assert str(tmp_path / "run" / "1") in said["unfit"]
    assert "StandardRestore() without a template restores it as it was saved" in said["unfit"]
    assert "like=" not in said["unfit"]
    assert said["missing"].startswith("AttributeError: tensorkeep.integrations.orbax has no 'type_handlers'")
    assert "CheckpointManagerOptions" in said["missing"]
    assert "key<fry>" in said["described"]
    assert "'n': 3" in said["described"]

"""The steps of a run of JAX: saved by all processes of a job, restored by any number of them."""

from __future__ import annotations

from pathlib import Path

import pytest

import tensorkeep
from tests.support.jax.meshes import mesh_saves
from tests.support.jax.meshes.jax_processes import Failed, JaxProcesses, shared
from tests.support.remote.s3_bucket import Bucket


@pytest.fixture
def two() -> JaxProcesses:
    return shared(2)


@pytest.mark.parametrize("in_background", [False, True])
def test_steps_of_two_processes_are_kept_and_restored(two: JaxProcesses, tmp_path: Path, in_background: bool) -> None:
    assert two.run(mesh_saves.save_steps, tmp_path / "run", (2, 2), in_background) == [[1, 2, 3]] * 2

    assert two.run(mesh_saves.restore_steps, tmp_path / "run", (4, 1)) == [[3, 1, 2]] * 2
    assert shared(1).run(mesh_saves.restore_steps, tmp_path / "run", (1, 2)) == [[3, 1, 2]]
    with tensorkeep.CheckpointStore(tmp_path / "run").open(3) as opened:
        assert opened.metadata["by"] == "test"
        aligned = [tensor.span.start % 64 for tensor in opened.values() if tensor.nbytes % 64 == 0]
        assert aligned == [0] * len(aligned)


def test_two_processes_encrypt_steps_together(two: JaxProcesses, tmp_path: Path) -> None:
    key = str(tmp_path / "aes.key")
    tensorkeep.encryption.new_key(key)
    assert two.run(mesh_saves.save_steps, tmp_path / "run", (2, 2), False, key) == [[1, 2, 3]] * 2

    assert two.run(mesh_saves.restore_steps, tmp_path / "run", (4, 1), key) == [[3, 1, 2]] * 2
    step = tmp_path / "run" / "step-00000003"
    assert tensorkeep.verify(step).is_whole
    assert tensorkeep.verify(step, key=key).is_whole
    with tensorkeep.open(step) as opened, pytest.raises(tensorkeep.errors.EncryptedError):
        opened.require_names()


def test_steps_of_two_processes_in_a_bucket(two: JaxProcesses) -> None:
    with Bucket.served() as bucket:
        root = bucket.at("run")
        assert two.run(mesh_saves.save_steps, root, (2, 2), False) == [[1, 2, 3]] * 2

        assert two.run(mesh_saves.restore_steps, root, (4, 1)) == [[3, 1, 2]] * 2
        assert {name.partition("/")[0] for name in bucket.names("run")} == {
            *(f"step-0000000{step}" for step in (1, 2, 3)),
            "tensorkeep-store.json",
        }


def test_one_process_saves_steps_as_two_do(two: JaxProcesses, tmp_path: Path) -> None:
    shared(1).run(mesh_saves.save_steps, tmp_path / "run", (1, 2), False)

    assert two.run(mesh_saves.restore_steps, tmp_path / "run", (2, 2)) == [[3, 1, 2]] * 2


def test_a_damaged_step_is_seen_by_the_first_process_and_left_by_all(two: JaxProcesses, tmp_path: Path) -> None:
    two.run(mesh_saves.save_steps, tmp_path / "run", (2, 2), False)
    file = next((tmp_path / "run" / "step-00000003").glob("*.safetensors"))
    file.write_bytes(file.read_bytes()[:-1] + b"?")

    assert two.run(mesh_saves.restore_steps, tmp_path / "run", (4, 1)) == [[2, 1, 2]] * 2


def test_without_a_step_all_say_so(two: JaxProcesses, tmp_path: Path) -> None:
    two.start(mesh_saves.restore_steps, tmp_path / "run", (2, 2))

    for result in two.results():
        assert isinstance(result, Failed)
        assert "SourceMissingError" in str(result)
    two.run(mesh_saves.save_steps, tmp_path / "run", (2, 2), False)

"""Several processes of jax save one checkpoint, which one process reads."""

from __future__ import annotations

import os
import random
import time
from pathlib import Path

import pytest

import tensorkeep
from tests.support.jax.meshes import mesh_saves
from tests.support.jax.meshes.jax_processes import Failed, JaxProcesses, Killed, shared
from tests.support.remote.fault_server import FaultServer
from tests.support.remote.s3_bucket import Bucket
from tests.support.soak import SEED, rounds

N_KILLS = rounds(1, 30)


@pytest.fixture
def two() -> JaxProcesses:
    return shared(2)


@pytest.fixture
def alone() -> JaxProcesses:
    return shared(1)


@pytest.mark.parametrize("shape", [(2, 2), (4, 1), (1, 4)])
def test_shards_of_two_processes_become_whole_tensors(
    two: JaxProcesses, tmp_path: Path, shape: tuple[int, int]
) -> None:
    two.run(mesh_saves.save_state, tmp_path / "ck", shape, 3)

    assert mesh_saves.number_in(tmp_path / "ck") == 3
    assert os.listdir(tmp_path / "ck") == ["model.safetensors"]
    state = tensorkeep.load(tmp_path / "ck", framework="numpy")
    assert state["host"].tolist() == [3, 4, 5, 6]
    assert state["local"].tolist() == [3, 3, 3]
    assert state["name"] == "run"


def test_a_later_save_takes_the_place_of_shards(two: JaxProcesses, tmp_path: Path) -> None:
    two.run(mesh_saves.save_state, tmp_path / "ck", (2, 2), 1, 300)
    assert len(os.listdir(tmp_path / "ck")) > 3
    two.run(mesh_saves.save_state, tmp_path / "ck", (4, 1), 2)

    assert mesh_saves.number_in(tmp_path / "ck") == 2
    assert os.listdir(tmp_path / "ck") == ["model.safetensors"]


@pytest.mark.parametrize("how", ["now", "in the background"])
def test_a_pytree_is_saved_by_all_and_restored_onto_other_shardings(
    two: JaxProcesses, alone: JaxProcesses, tmp_path: Path, how: str
) -> None:
    two.run(mesh_saves.save_tree, tmp_path / "ck", (2, 2), 8, how)

    assert two.run(mesh_saves.load_tree, tmp_path / "ck", (4, 1), 8) == ["equal", "equal"]
    alone.run(mesh_saves.load_tree, tmp_path / "ck", (1, 2), 8)


def test_four_processes_save_what_two_load_onto_another_mesh(two: JaxProcesses, tmp_path: Path) -> None:
    with JaxProcesses(4) as four:
        four.run(mesh_saves.save_state, tmp_path / "ck", (2, 4), 5, 300)
        two.run(mesh_saves.save_state, tmp_path / "of two", (4, 1), 6)
        four.run(mesh_saves.load_state, tmp_path / "of two", (4, 2), 6)

    assert mesh_saves.number_in(tmp_path / "ck") == 5
    two.run(mesh_saves.load_state, tmp_path / "ck", (1, 4), 5)


@pytest.mark.parametrize("shape", [(2, 2), (4, 1), (1, 4)])
@pytest.mark.parametrize("backend", ["mmap", "pread"])
def test_two_processes_load_onto_any_mesh(
    two: JaxProcesses, tmp_path: Path, shape: tuple[int, int], backend: str
) -> None:
    two.run(mesh_saves.save_state, tmp_path / "ck", (2, 2), 4, 300)

    assert two.run(mesh_saves.load_state, tmp_path / "ck", shape, 4, backend) == ["equal", "equal"]


def test_each_process_reads_little_more_than_its_shards(two: JaxProcesses, tmp_path: Path) -> None:
    two.run(mesh_saves.save_large, tmp_path / "ck", (2, 2), 12 * 2**20)

    for own, read in two.run(mesh_saves.bytes_read_by_load, tmp_path / "ck", (2, 2)):
        assert own <= read <= 1.1 * own


def test_background_saves_have_what_there_was(two: JaxProcesses, tmp_path: Path) -> None:
    two.run(mesh_saves.save_in_background_twice, tmp_path / "ck", (2, 2))

    assert [mesh_saves.number_in(tmp_path / name) for name in ("ck", "ck-2")] == [1, 2]


@pytest.mark.parametrize(("what", "said"), [("tensor", "different values of `host`"), ("value", "different states")])
def test_processes_that_save_different_things_are_refused(
    two: JaxProcesses, tmp_path: Path, what: str, said: str
) -> None:
    for answer in two.run(mesh_saves.save_differing, tmp_path / "ck", (2, 2), what):
        assert answer.startswith("StateError: ")
        assert said in answer
    assert not (tmp_path / "ck").exists()


def test_one_process_with_several_devices_saves_and_loads_shards(alone: JaxProcesses, tmp_path: Path) -> None:
    alone.run(mesh_saves.save_alone, tmp_path / "ck", (1, 2), 7)
    alone.run(mesh_saves.load_state, tmp_path / "ck", (2, 1), 7)

    assert mesh_saves.number_in(tmp_path / "ck") == 7


@pytest.mark.parametrize(("n_processes", "shape"), [(1, (1, 2)), (2, (2, 2))])
def test_one_sharded_array_under_two_names_is_stored_once(
    n_processes: int, shape: tuple[int, int], tmp_path: Path
) -> None:
    for names in shared(n_processes).run(mesh_saves.save_tied, tmp_path / "ck", shape):
        assert len(names) == 2
        assert "equal" in names


def test_shards_of_others_cannot_be_saved_alone(two: JaxProcesses, tmp_path: Path) -> None:
    for answer in two.run(mesh_saves.save_differing, tmp_path / "ck", (2, 2), "alone"):
        assert answer.startswith("UnsupportedError: ")
        assert "tensorkeep.jax.save, called by all processes, saves the shards of each" in answer
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("dtype", "cast_to"),
    [
        ("int4", "int8"),
        ("uint2", "uint8"),
        ("float8_e3m4", "float32"),
        ("float4_e2m1fn", "float8_e4m3fn"),
    ],
)
def test_what_several_processes_cannot_save_is_saved_as_the_error_says(
    two: JaxProcesses, tmp_path: Path, dtype: str, cast_to: str
) -> None:
    for said in two.run(mesh_saves.save_cast, tmp_path / "ck", dtype, cast_to):
        assert f"ast it to {cast_to}, which has all its numbers" in said


def test_what_one_process_cannot_save_all_refuse(two: JaxProcesses, tmp_path: Path) -> None:
    first, second = two.run(mesh_saves.save_differing, tmp_path / "ck", (2, 2), "fails")

    assert second.startswith("StateError: ")
    assert first.startswith("StateError: rank 1: ")
    assert "step" in first
    two.run(mesh_saves.save_state, tmp_path / "ck", (2, 2), 1)
    assert mesh_saves.number_in(tmp_path / "ck") == 1


@pytest.mark.parametrize("how", ["metrics", "tree", "timeout"])
def test_steps_are_never_mixed_when_a_save_fails_in_one_process(two: JaxProcesses, tmp_path: Path, how: str) -> None:
    first, (begun, second) = two.run(mesh_saves.fail_once_in_one_process, tmp_path / "run", how)

    assert begun[0].startswith(("StateError: ", "UnsupportedError: "))
    assert any("rank 1: " in said for said in (*first[0], *first[1]))  # from a later call, or from the handle
    assert begun[1:] == second == ["None", "None"]
    store = tensorkeep.CheckpointStore(tmp_path / "run")
    assert store.steps() == [2, 3]
    for step in (2, 3):
        assert store.load(step, framework="numpy")["rows"].tolist() == [step] * 16


def test_an_error_that_is_raised_late_fails_no_other_save(two: JaxProcesses, tmp_path: Path) -> None:
    first, second = two.run(mesh_saves.go_on_after_an_error, tmp_path / "run")

    assert second[0].startswith("StateError: ")
    assert first[1].startswith("StateError: rank 1: ")
    for said in (first[0], first[2], second[1], second[2]):
        assert said.startswith("SaveHandle(")
    store = tensorkeep.CheckpointStore(tmp_path / "run")
    assert store.steps() == [2, 3, 4]
    for step in store.steps():
        assert store.load(step, framework="numpy")["rows"].tolist() == [step] * 16


@pytest.mark.parametrize("how", ["key", "tree", "size"])
def test_the_others_are_told_of_a_call_that_fails_at_once(two: JaxProcesses, tmp_path: Path, how: str) -> None:
    start = time.monotonic()
    first, second = two.run(mesh_saves.fail_and_save, tmp_path / "ck", str(tmp_path / "key"), how)

    assert "rank 1: " in first[0]
    assert not second[0].startswith(("None", "TransportError: no sign"))
    assert first[1] == second[1] == "None"
    assert os.listdir(tmp_path) == ["ck-2"]
    assert tensorkeep.load(tmp_path / "ck-2", framework="numpy")["rows"].tolist() == [2] * 16
    assert time.monotonic() - start < 25


@pytest.mark.parametrize(
    ("what", "said"),
    [
        *(
            (name, f"the {name} differs between processes")
            for name in ("path", "metadata", "max_shard_size", "align")
        ),
        *((name, f"the {name} differs between processes") for name in ("durable", "order", "function")),
        ("step", "the path differs between processes"),
        ("counter", "different values of `counter`"),
    ],
)
def test_processes_that_make_different_calls_are_refused(
    two: JaxProcesses, tmp_path: Path, what: str, said: str
) -> None:
    for answer in two.run(mesh_saves.differ_in, tmp_path / "run", what):
        assert answer.startswith("StateError: ")
        assert said in answer
    assert [path for path in tmp_path.rglob("*") if path.suffix == ".safetensors"] == []


def test_replicated_floats_may_differ_in_their_last_bits(two: JaxProcesses, tmp_path: Path) -> None:
    assert two.run(mesh_saves.save_unequal_floats, tmp_path / "ck") == ["None"] * 2


def test_a_server_sends_each_process_its_shards(two: JaxProcesses, tmp_path: Path) -> None:
    two.run(mesh_saves.save_large, tmp_path / "ck", (2, 2), 12 * 2**20)
    files = {f"ck/{path.name}": path.read_bytes() for path in (tmp_path / "ck").iterdir()}
    with FaultServer(files) as server:
        index = next(name for name in files if name.endswith(".json"))
        own = sum(two.run(mesh_saves.load_rows, server.url + index, (4, 1)))
        sent = sum(request.nbytes for request in server.requests)

    assert own <= sent <= 1.1 * own + 2**20  # index and headers, twice


def test_all_save_to_a_bucket_and_each_loads_its_shards(two: JaxProcesses, alone: JaxProcesses) -> None:
    with Bucket.served() as bucket:
        settings = bucket.environment
        url = "s3://models/run/step"
        assert two.run(mesh_saves.save_and_load_in_bucket, url, settings, (4, 1), 3) == ["equal"] * 2
        assert alone.run(mesh_saves.save_and_load_in_bucket, url, settings, (1, 2), 5) == ["equal"]


def kill_one_while_saving(n_processes: int, path: Path, ready: Path, seconds: float, number: int, how: str) -> None:
    with JaxProcesses(n_processes, heartbeat_s=2) as processes:
        if how != "store":
            processes.run(mesh_saves.save_state, path, (n_processes, 2), 1)
        processes.start(mesh_saves.save_until_killed, path, (n_processes, 2), str(ready), how)
        deadline = time.monotonic() + 120
        while not all(ready.with_name(f"{ready.name}-{each}").exists() for each in range(n_processes)):
            assert time.monotonic() < deadline
            time.sleep(0.001)
        time.sleep(seconds)
        processes.kill(number)
        results = processes.results()
    assert isinstance(results[number], Killed)
    assert all(isinstance(result, Failed | Killed) for result in results)
    if how != "store":
        mesh_saves.number_in(path)
        return
    store = tensorkeep.CheckpointStore(path)
    for step in store.steps():
        assert mesh_saves.number_in(store.path_of(step)) == step


@pytest.mark.soak
@pytest.mark.parametrize("n_processes", [2, 4])
def test_a_process_killed_at_any_time_leaves_a_whole_checkpoint(n_processes: int, tmp_path: Path) -> None:
    times = random.Random(SEED + 28 + n_processes)
    for number in range(N_KILLS):
        how = ("store", "now", "async")[number % 3]
        ready = tmp_path / f"ready{number}"
        seconds = times.uniform(0, 0.15 * n_processes)
        kill_one_while_saving(n_processes, tmp_path / how, ready, seconds, number % n_processes, how)

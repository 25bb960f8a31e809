"""What is saved, where, and what happens when it cannot be."""

from __future__ import annotations

import gc
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from accelerate.utils import DistributedType

import tensorkeep
from tensorkeep.checkpoint import save_folder, verify_folder
from tensorkeep.errors import (
    BusyError,
    FormatError,
    IntegrityError,
    RefusedError,
    SourceMissingError,
    StateDictMismatchError,
    StateError,
    TransportError,
    UnsupportedError,
)
from tensorkeep.integrations.accelerate import Accelerator, keep_safe
from tensorkeep.transport import publish_directory
from tests.support import SUPPORT, forks
from tests.support.integrations.accelerate.runs import NoData, Run, everything, make_run, same, train

HERE = SUPPORT / "integrations" / "accelerate"


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def saved(tmp_path: Path) -> tuple[Run, Path]:
    run = make_run(0)
    train(run, range(1))
    path = run.accelerator.save_state(tmp_path / "state")
    assert path == tmp_path / "state"
    return run, path


def test_nothing_is_a_pickle_and_all_has_digests(saved: tuple[Run, Path]) -> None:
    _, path = saved

    assert {file.name for file in path.iterdir()} == {
        "model.safetensors",
        "optimizer.safetensors",
        "scheduler.safetensors",
        "custom_checkpoint_0.safetensors",
        "process_0.safetensors",
        "tensorkeep.manifest.json",
    }
    assert verify_folder(path) == []
    assert all(tensorkeep.verify(file).is_whole for file in path.glob("*.safetensors"))
    assert len(list(path.parent.iterdir())) == 1


def test_others_read_the_weights(saved: tuple[Run, Path]) -> None:
    run, path = saved
    weights = safetensors.torch.load_file(path / "model.safetensors")

    assert same(weights, dict(run.model.state_dict()))
    assert same(tensorkeep.load(path / "optimizer.safetensors"), run.optimizer.state_dict())
    run.accelerator.unwrap_model(run.model).load_state_dict(weights)


def test_a_flipped_bit_anywhere_is_found(saved: tuple[Run, Path]) -> None:
    run, path = saved
    before = everything(run)
    for file in sorted(path.iterdir()):
        whole = file.read_bytes()
        for place in (len(whole) // 3, len(whole) - 1):
            damaged = bytearray(whole)
            damaged[place] ^= 1
            file.write_bytes(damaged)
            with pytest.raises((IntegrityError, FormatError)):
                run.accelerator.load_state(path)
        file.unlink()
        with pytest.raises(SourceMissingError):
            run.accelerator.load_state(path)
        file.write_bytes(whole)

    assert same(everything(run), before)
    run.accelerator.load_state(path)


def test_what_others_put_into_the_directory_stays(saved: tuple[Run, Path]) -> None:
    run, path = saved
    (path / "tokenizer").mkdir()
    (path / "tokenizer" / "vocabulary.json").write_text("{}")

    run.accelerator.save_state(path)

    assert (path / "tokenizer" / "vocabulary.json").read_text() == "{}"
    assert verify_folder(path) == []


def test_fewer_objects_leave_no_file_of_the_others(saved: tuple[Run, Path]) -> None:
    run, path = saved
    run.accelerator._custom_objects.clear()

    run.accelerator.save_state(path)

    assert not (path / "custom_checkpoint_0.safetensors").exists()
    run.accelerator.load_state(path)


def save_pretrained(models: list[Any], weights: list[Any], folder: str) -> None:
    """Save as programs for diffusers do: in a directory of its own, and take the weights off the list."""
    for number, model in enumerate(models):
        inner = Path(folder, f"unet_{number}")
        inner.mkdir()
        safetensors.torch.save_file(model.state_dict(), inner / "weights.safetensors")
        (inner / "config.json").write_text('{"width": 16}')
        weights.pop()


def from_pretrained(models: list[Any], folder: str) -> None:
    for number in range(len(models)):
        model = models.pop()
        model.load_state_dict(safetensors.torch.load_file(Path(folder, f"unet_{number}", "weights.safetensors")))


def test_hooks_save_and_load_as_ever(tmp_path: Path) -> None:
    run = make_run(0)
    run.accelerator.register_save_state_pre_hook(save_pretrained)
    handle = run.accelerator.register_load_state_pre_hook(from_pretrained)
    train(run, range(1))
    run.accelerator.save_state(tmp_path / "state")
    expected = everything(run)
    train(run, range(1))

    run.accelerator.load_state(tmp_path / "state")

    assert same(everything(run), expected)
    assert not (tmp_path / "state" / "model.safetensors").exists()
    (tmp_path / "state" / "unet_0" / "config.json").write_text('{"width": 17}')
    with pytest.raises(IntegrityError, match=r"unet_0/config\.json"):
        run.accelerator.load_state(tmp_path / "state")
    handle.remove()


def test_a_hook_chooses_what_is_saved(tmp_path: Path) -> None:
    def only_the_last(models: list[Any], weights: list[Any], folder: str) -> None:
        assert len(models) == 1
        weights[0] = {name: value for name, value in weights[0].items() if name.startswith("3.")}

    run = make_run(0)
    run.accelerator.register_save_state_pre_hook(only_the_last)
    run.accelerator.save_state(tmp_path / "state")

    assert set(tensorkeep.open(tmp_path / "state" / "model.safetensors")) == {"3.weight", "3.bias"}
    with pytest.raises(StateDictMismatchError, match=r"missing: `0\.weight`"):
        run.accelerator.load_state(tmp_path / "state")
    run.accelerator.load_state(tmp_path / "state", strict=False)


def test_a_state_that_is_no_data_is_named(saved: tuple[Run, Path]) -> None:
    run, path = saved
    train(run, range(1))
    before = contents(path)
    run.accelerator.register_for_checkpointing(NoData())

    with pytest.raises(StateError, match="'function' is not data") as raised:
        run.accelerator.save_state(path)

    assert "custom_checkpoint_1.safetensors" in raised.value.__notes__[0]
    assert contents(path) == before
    assert os.listdir(path.parent) == ["state"]


def test_a_hook_that_fails_leaves_nothing(saved: tuple[Run, Path]) -> None:
    def fail(models: list[Any], weights: list[Any], folder: str) -> None:
        Path(folder, "half").write_text("written")
        raise ZeroDivisionError("by the hook")

    run, path = saved
    before = contents(path)
    run.accelerator.register_save_state_pre_hook(fail)

    with pytest.raises(ZeroDivisionError, match="by the hook"):
        run.accelerator.save_state(path)
    with pytest.raises(ZeroDivisionError, match="by the hook"):
        run.accelerator.save_state(path.with_name("other"))

    assert contents(path) == before
    assert os.listdir(path.parent) == ["state"]


def test_two_saves_at_once_are_one_too_many(saved: tuple[Run, Path]) -> None:
    run, path = saved
    before = contents(path)

    with publish_directory(path) as staging:
        with pytest.raises(BusyError):
            run.accelerator.save_state(path)
        Path(staging, "other").write_text("won")

    assert contents(path) == {"other": b"won"}
    assert before.keys() > {"model.safetensors"}


def test_a_directory_that_cannot_be(saved: tuple[Run, Path]) -> None:
    run, path = saved

    with pytest.raises(TransportError):
        run.accelerator.save_state(path / "model.safetensors")
    with pytest.raises(TransportError):
        run.accelerator.save_state(path / "model.safetensors" / "state")
    with pytest.raises(RefusedError, match="no directory"):
        run.accelerator.save_state()
    with pytest.raises(RefusedError, match="no directory"):
        run.accelerator.load_state()
    with pytest.raises(SourceMissingError):
        run.accelerator.load_state(path.with_name("missing"))

    assert verify_folder(path) == []


def test_the_working_directory_is_not_replaced(
    saved: tuple[Run, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, _ = saved
    (tmp_path / "project" / "src").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "project" / "src")

    for path in ("", ".", "..", tmp_path, "/"):
        with pytest.raises(RefusedError):
            run.accelerator.save_state(path)

    run.accelerator.save_state("../state")
    run.accelerator.load_state("../state")
    assert sorted(os.listdir(tmp_path / "project")) == ["src", "state"]


def test_a_disk_that_is_full_or_read_only(tmp_path: Path) -> None:
    if shutil.which("unshare") is None:
        pytest.skip("no unshare(1) to mount a small disk with")
    mount = ["unshare", "--mount", "--map-root-user"]
    may_mount = subprocess.run([*mount, "mount", "-t", "tmpfs", "tmpfs", tmp_path], capture_output=True, check=False)
    if may_mount.returncode:
        pytest.skip(f"no rights to mount a small disk: {may_mount.stderr!r}")

    done = forks.run(HERE / "small_disk.py", tmp_path, modules=forks.ACCELERATE, own_mounts=True)

    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["full"] * 5 + ["read-only", "saved"]


def test_it_does_not_fit(saved: tuple[Run, Path]) -> None:
    _, path = saved
    wider = make_run(1, model=torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Linear(8, 1)))
    before = everything(wider)

    with pytest.raises(StateDictMismatchError):
        wider.accelerator.load_state(path)

    assert same(everything(wider), before)
    more = make_run(1)
    more.accelerator.register_for_checkpointing(torch.nn.Linear(1, 1))
    with pytest.raises(StateDictMismatchError, match="registered has other objects") as raised:
        more.accelerator.load_state(path)
    assert str(path) in raised.value.__notes__[0]
    other = make_run(1, seedable=False)
    with pytest.raises(StateDictMismatchError, match="use_seedable_sampler=False"):
        other.accelerator.load_state(path)


@pytest.mark.parametrize(
    "change",
    [
        {"places": [{"epoch": 1, "seeding": {"epoch": 1, "initial_seed": "x"}}]},
        {"places": [{"epoch": "1"}]},
        {"step": None},
        {"rng": 5},
        {"n_processes": []},
    ],
    ids=lambda change: next(iter(change)),
)
def test_a_process_that_is_none(saved: tuple[Run, Path], change: dict[str, Any]) -> None:
    run, path = saved
    state = tensorkeep.load(path / "process_0.safetensors")
    with save_folder(path) as staging:
        shutil.copytree(path, staging, dirs_exist_ok=True)
        tensorkeep.save(state | change, Path(staging, "process_0.safetensors"))
    before = everything(run)

    with pytest.raises(FormatError, match="not the state of a process"):
        run.accelerator.load_state(path)

    assert same(everything(run), before)


def test_states_of_other_kinds_do_not_fit(saved: tuple[Run, Path]) -> None:
    run, path = saved
    before = everything(run)
    for name in ("model", "optimizer"):
        for state in ([1, 2], {}, {"state": torch.ones(3)}):
            with save_folder(path.with_name("other")) as staging:
                shutil.copytree(path, staging, dirs_exist_ok=True)
                tensorkeep.save(state, Path(staging, f"{name}.safetensors"))
            with pytest.raises(StateDictMismatchError):
                run.accelerator.load_state(path.with_name("other"))

    assert same(everything(run), before)


def test_random_generators_are_left_alone_when_asked_for(saved: tuple[Run, Path]) -> None:
    run, path = saved
    torch.manual_seed(123)
    before = torch.get_rng_state()

    run.accelerator.load_state(path, rng=False)

    assert torch.equal(torch.get_rng_state(), before)


def test_pickles_and_engines_are_refused(tmp_path: Path) -> None:
    run = make_run(0)

    with pytest.raises(UnsupportedError, match="pickles are never written"):
        run.accelerator.save_state(tmp_path / "state", safe_serialization=False)
    with pytest.raises(UnsupportedError, match="pickles are never written"):
        run.accelerator.save_model(run.model, tmp_path / "model", safe_serialization=False)
    for engine in (DistributedType.FSDP, DistributedType.DEEPSPEED, DistributedType.MEGATRON_LM):
        run.accelerator.state.distributed_type = engine
        with pytest.raises(UnsupportedError, match=engine.value):
            keep_safe(run.accelerator)
    assert list(tmp_path.iterdir()) == []


def test_a_load_that_fails_lets_go_of_all_that_it_had_read(tmp_path: Path) -> None:
    def wide(width: int) -> torch.nn.Module:
        return torch.nn.Sequential(torch.nn.Linear(4, width), torch.nn.Linear(width, width))

    def mapped() -> list[str]:
        return [line for line in Path("/proc/self/maps").read_text().splitlines() if str(tmp_path) in line]

    make_run(0, model=wide(1000)).accelerator.save_state(tmp_path / "state")
    other = make_run(1, model=wide(300))
    gc.collect()
    gc.disable()
    try:
        with pytest.raises(StateDictMismatchError) as raised:
            other.accelerator.load_state(tmp_path / "state")
        assert mapped()
        del raised
        assert not mapped()
    finally:
        gc.enable()


def test_a_model_in_shards(tmp_path: Path) -> None:
    accelerator = Accelerator(cpu=True)
    model = accelerator.prepare(torch.nn.Sequential(*(torch.nn.Linear(32, 32) for _ in range(4))))
    accelerator.save_model(model, tmp_path / "model", max_shard_size="5KB")
    (tmp_path / "model" / "config.json").write_text("{}")
    assert len(list(tmp_path.joinpath("model").glob("*.safetensors"))) == 4

    accelerator.save_model(model, tmp_path / "model", max_shard_size=9000)

    names = {path.name for path in tmp_path.joinpath("model").iterdir()}
    shards = {f"model-0000{n}-of-00002.safetensors" for n in (1, 2)}
    assert names == {*shards, "model.safetensors.index.json", "config.json"}
    assert tensorkeep.verify(tmp_path / "model").is_whole
    assert same(tensorkeep.load(tmp_path / "model"), dict(model.state_dict()))
    with pytest.raises(TransportError):
        accelerator.save_model(model, tmp_path / "model" / "config.json")

"""Saves in the background: nothing is removed before what replaces it is there, and no error is lost."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from statistics import median
from typing import Any

import pytest
import torch

import tensorkeep
from tensorkeep.errors import StateError, TransportError, UnsupportedError
from tensorkeep.integrations.lightning import AsyncTensorkeepCheckpointIO, TensorkeepCheckpointIO
from tests.support.integrations.lightning.runs import TIMEOUT_S, Gate, Regressor, checkpoints, loader, trainer


@pytest.fixture
def gate(tmp_path: Path) -> Iterator[Gate]:
    made = Gate(tmp_path)
    yield made
    made.open()


@pytest.fixture
def plugin(gate: Gate) -> Iterator[AsyncTensorkeepCheckpointIO]:
    made = AsyncTensorkeepCheckpointIO(max_waiting=9)
    yield made
    gate.open()
    with suppress(TransportError):
        made.teardown()


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.glob("*.ckpt"))


def test_a_save_does_not_wait_and_takes_what_was_there(
    tmp_path: Path, gate: Gate, plugin: AsyncTensorkeepCheckpointIO
) -> None:
    weight, notes = torch.ones(1000), ["before"]
    plugin.save_checkpoint({"slow": gate.tensor, "weight": weight, "notes": notes}, tmp_path / "a.ckpt")
    weight.zero_()
    notes.append("after")

    assert names(tmp_path) == []
    gate.open()
    plugin.wait()

    loaded = plugin.load_checkpoint(tmp_path / "a.ckpt")
    assert loaded["weight"].equal(torch.ones(1000))
    assert loaded["notes"] == ["before"]


def test_the_old_one_is_removed_when_the_new_one_is_there(
    tmp_path: Path, gate: Gate, plugin: AsyncTensorkeepCheckpointIO
) -> None:
    plugin.save_checkpoint({"epoch": 1}, tmp_path / "old.ckpt")
    plugin.wait()
    plugin.save_checkpoint({"epoch": 2, "slow": gate.tensor}, tmp_path / "new.ckpt")
    begin = time.monotonic()
    plugin.remove_checkpoint(tmp_path / "old.ckpt")

    assert time.monotonic() - begin < TIMEOUT_S / 10, "the Trainer waited"
    assert names(tmp_path) == ["old.ckpt"]
    gate.open()
    plugin.wait()
    assert names(tmp_path) == ["new.ckpt"]


def test_what_is_still_to_be_written_is_removed_after_that(
    tmp_path: Path, gate: Gate, plugin: AsyncTensorkeepCheckpointIO
) -> None:
    """With `save_top_k=1` on a slow disk, Lightning's own plugin leaves all checkpoints."""
    for epoch in range(4):
        plugin.save_checkpoint({"epoch": epoch, "slow": gate.tensor}, tmp_path / f"{epoch}.ckpt")
        if epoch:
            plugin.remove_checkpoint(tmp_path / f"{epoch - 1}.ckpt")

    assert names(tmp_path) == []
    gate.open()
    plugin.teardown()
    assert names(tmp_path) == ["3.ckpt"]


def test_a_slow_disk_keeps_one_checkpoint_of_a_real_run(tmp_path: Path, gate: Gate) -> None:
    class Slow(Regressor):
        def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
            checkpoint["slow"] = gate.tensor

        def on_train_end(self) -> None:
            self.names_at_end = names(tmp_path)
            gate.open()

    module = Slow()
    made = trainer(
        tmp_path,
        plugins=[AsyncTensorkeepCheckpointIO(max_waiting=99)],
        callbacks=[checkpoints(tmp_path, save_top_k=1, save_last=True)],
        max_epochs=4,
    )
    made.fit(module, loader())

    assert module.names_at_end == []
    assert names(tmp_path) == ["epoch=3-step=24.ckpt", "last.ckpt"]


def test_one_path_saved_again_is_the_last_one(
    tmp_path: Path, gate: Gate, plugin: AsyncTensorkeepCheckpointIO
) -> None:
    for epoch in range(3):
        plugin.save_checkpoint({"epoch": epoch, "slow": gate.tensor}, tmp_path / "last.ckpt")
    gate.open()

    assert plugin.load_checkpoint(tmp_path / "last.ckpt")["epoch"] == 2, "loading waits"


def test_removed_and_saved_again_is_there(tmp_path: Path, gate: Gate, plugin: AsyncTensorkeepCheckpointIO) -> None:
    plugin.save_checkpoint({"epoch": 1, "slow": gate.tensor}, tmp_path / "a.ckpt")
    plugin.remove_checkpoint(tmp_path / "a.ckpt")
    plugin.save_checkpoint({"epoch": 2}, tmp_path / "a.ckpt")
    gate.open()
    plugin.teardown()

    assert TensorkeepCheckpointIO().load_checkpoint(tmp_path / "a.ckpt")["epoch"] == 2


@pytest.mark.parametrize("call", ["save", "remove", "load", "wait", "teardown"])
def test_an_error_is_raised_by_whatever_is_called_next_and_once(
    tmp_path: Path, gate: Gate, plugin: AsyncTensorkeepCheckpointIO, call: str
) -> None:
    plugin.save_checkpoint({"epoch": 0}, tmp_path / "old.ckpt")
    plugin.wait()
    (tmp_path / "bad.ckpt").mkdir()
    plugin.save_checkpoint({"epoch": 1}, tmp_path / "bad.ckpt")
    for _ in range(1000):
        if not plugin._pending.paths():
            break
        time.sleep(0.01)
    calls = {
        "save": lambda: plugin.save_checkpoint({"epoch": 2}, tmp_path / "new.ckpt"),
        "remove": lambda: plugin.remove_checkpoint(tmp_path / "old.ckpt"),
        "load": lambda: plugin.load_checkpoint(tmp_path / "old.ckpt"),
        "wait": plugin.wait,
        "teardown": plugin.teardown,
    }

    with pytest.raises(TransportError, match=r"only regular files are replaced") as caught:
        calls[call]()

    assert any("bad.ckpt" in note for note in caught.value.__notes__)
    assert (tmp_path / "old.ckpt").exists()
    assert not (tmp_path / "new.ckpt").exists()
    calls[call]()
    plugin.teardown()


def test_what_a_failed_save_was_to_replace_stays(
    tmp_path: Path, gate: Gate, plugin: AsyncTensorkeepCheckpointIO
) -> None:
    plugin.save_checkpoint({"epoch": 0}, tmp_path / "old.ckpt")
    plugin.wait()
    (tmp_path / "new.ckpt").mkdir()
    plugin.save_checkpoint({"first": 1, "slow": gate.tensor}, tmp_path / "first.ckpt")
    plugin.save_checkpoint({"epoch": 1}, tmp_path / "new.ckpt")
    plugin.remove_checkpoint(tmp_path / "old.ckpt")
    gate.open()

    with pytest.raises(TransportError):
        plugin.wait()

    assert plugin.load_checkpoint(tmp_path / "old.ckpt")["epoch"] == 0


def test_a_save_that_waited_for_one_that_failed_is_not_begun(tmp_path: Path, gate: Gate) -> None:
    plugin = AsyncTensorkeepCheckpointIO(max_waiting=0)
    (tmp_path / "bad.ckpt").mkdir()
    plugin.save_checkpoint({"slow": gate.tensor}, tmp_path / "bad.ckpt")
    threading.Timer(0.2, gate.open).start()

    with pytest.raises(TransportError, match=r"bad\.ckpt"):
        plugin.save_checkpoint({"epoch": 1}, tmp_path / "new.ckpt")

    plugin.teardown()
    assert not (tmp_path / "new.ckpt").exists()


def test_several_errors_are_all_told(tmp_path: Path, gate: Gate, plugin: AsyncTensorkeepCheckpointIO) -> None:
    (tmp_path / "one.ckpt").mkdir()
    (tmp_path / "two.ckpt").mkdir()
    plugin.save_checkpoint({"slow": gate.tensor}, tmp_path / "good.ckpt")
    plugin.save_checkpoint({"epoch": 1}, tmp_path / "one.ckpt")
    plugin.save_checkpoint({"epoch": 1}, tmp_path / "two.ckpt")
    gate.open()

    with pytest.raises(TransportError, match=r"one\.ckpt") as caught:
        plugin.teardown()
    assert any("two.ckpt" in note for note in caught.value.__notes__)
    plugin.teardown()


def test_a_removal_that_fails_is_an_error_too(
    tmp_path: Path, gate: Gate, plugin: AsyncTensorkeepCheckpointIO
) -> None:
    plugin.save_checkpoint({"slow": gate.tensor}, tmp_path / "new.ckpt")
    plugin.remove_checkpoint("/proc/1/status")
    gate.open()

    with pytest.raises(TransportError, match="could not remove the checkpoint"):
        plugin.wait()
    assert (tmp_path / "new.ckpt").exists()


@pytest.mark.parametrize("max_epochs", [2, 100], ids=["at the end", "in training"])
def test_a_run_whose_save_fails_fails(tmp_path: Path, max_epochs: int) -> None:
    class Breaking(Regressor):
        def on_train_epoch_start(self) -> None:
            if self.current_epoch == 1:
                (tmp_path / "epoch=1-step=12.ckpt").mkdir()

        def on_train_epoch_end(self) -> None:
            time.sleep(0.1 * (self.current_epoch > 1))

    made = trainer(
        tmp_path,
        plugins=[AsyncTensorkeepCheckpointIO()],
        callbacks=[checkpoints(tmp_path, enable_version_counter=False)],
        max_epochs=max_epochs,
    )
    with pytest.raises(TransportError, match=r"epoch=1-step=12\.ckpt"):
        made.fit(Breaking(), loader())
    assert made.current_epoch < 20, "it went on after the error"


def test_no_data_is_an_error_at_once(tmp_path: Path, plugin: AsyncTensorkeepCheckpointIO) -> None:
    with pytest.raises(StateError, match=r"a\.b"):
        plugin.save_checkpoint({"a": {"b": object()}}, tmp_path / "a.ckpt")
    plugin.teardown()


def test_the_end_of_the_process_waits(tmp_path: Path) -> None:
    program = """
import sys, torch, lightning.pytorch
from tensorkeep.integrations.lightning import AsyncTensorkeepCheckpointIO
plugin = AsyncTensorkeepCheckpointIO()
plugin.save_checkpoint({"epoch": 0, "w": torch.ones(10)}, sys.argv[1] + "/old.ckpt")
plugin.save_checkpoint({"epoch": 1, "w": torch.ones(20_000_000)}, sys.argv[1] + "/new.ckpt")
plugin.remove_checkpoint(sys.argv[1] + "/old.ckpt")
"""
    done = subprocess.run([sys.executable, "-c", program, tmp_path], capture_output=True, text=True)

    assert not done.returncode, done.stderr
    assert names(tmp_path) == ["new.ckpt"]
    assert tensorkeep.verify(tmp_path / "new.ckpt").is_whole


def test_the_stall_is_shorter_than_a_save(tmp_path: Path) -> None:
    checkpoint = {"state_dict": {f"w{n}": torch.randn(1_000_000) for n in range(32)}}
    seconds: dict[str, list[float]] = {"blocking": [], "background": []}
    plugins = {"blocking": TensorkeepCheckpointIO(), "background": AsyncTensorkeepCheckpointIO()}
    for _ in range(6):
        for name, plugin in plugins.items():
            begin = time.perf_counter()
            plugin.save_checkpoint(checkpoint, tmp_path / f"{name}.ckpt")
            seconds[name].append(time.perf_counter() - begin)
            plugin.teardown()

    assert median(seconds["background"][1:]) < median(seconds["blocking"][1:])
    assert (tmp_path / "background.ckpt").read_bytes() == (tmp_path / "blocking.ckpt").read_bytes()


def test_copies_begin_without_saves(tmp_path: Path, gate: Gate, plugin: AsyncTensorkeepCheckpointIO) -> None:
    plugin.save_checkpoint({"slow": gate.tensor}, tmp_path / "a.ckpt")
    other = copy.deepcopy(plugin)

    other.teardown()
    other.save_checkpoint({"epoch": 1}, tmp_path / "b.ckpt")
    other.teardown()
    assert names(tmp_path) == ["b.ckpt"]


def test_a_negative_number_may_not_wait() -> None:
    with pytest.raises(UnsupportedError, match="max_waiting"):
        AsyncTensorkeepCheckpointIO(max_waiting=-1)


def test_names_that_are_equal_are_warned_of(tmp_path: Path, gate: Gate) -> None:
    """ModelCheckpoint gives numbers to equal names of files that are there, and these are not there yet."""

    class Slow(Regressor):
        def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
            checkpoint["slow"] = gate.tensor

        def on_train_end(self) -> None:
            gate.open()

    keeping = checkpoints(tmp_path, filename="{epoch}", every_n_train_steps=3, save_top_k=-1, save_last=True)
    made = trainer(tmp_path, plugins=[AsyncTensorkeepCheckpointIO(max_waiting=99)], callbacks=[keeping], max_epochs=1)
    with pytest.warns(UserWarning, match=r"filename=") as caught:
        made.fit(Slow(), loader())

    ours = [str(warning.message) for warning in caught if "filename=" in str(warning.message)]
    assert len(ours) == 1
    assert "epoch=0.ckpt" in ours[0], "and not the last one, which is replaced on purpose"


def test_a_plugin_can_be_pickled(plugin: AsyncTensorkeepCheckpointIO, tmp_path: Path) -> None:
    other = pickle.loads(pickle.dumps(plugin))

    other.save_checkpoint({"epoch": 3}, tmp_path / "x.ckpt")
    assert other.load_checkpoint(tmp_path / "x.ckpt") == {"epoch": 3}

"""A save that fails raises, out of the training too, and leaves what was there; the history says so."""

from __future__ import annotations

import errno
import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from skorch.callbacks import Callback

from tensorkeep.errors import BusyError, SourceMissingError, StateError, TransportError
from tensorkeep.integrations.skorch import Checkpoint, TrainEndCheckpoint, load_params
from tensorkeep.integrations.skorch import _files as _skorch_files
from tensorkeep.transport import transaction
from tests.support import SUPPORT, forks
from tests.support.integrations.skorch.nets import Layers, X, Y, make_net, parts_of, same

PROGRAM = SUPPORT / "integrations" / "skorch" / "small_disk.py"


class Odd(Layers):
    """A module whose state is no data from its second epoch on."""

    def get_extra_state(self) -> Any:
        return 1 if not hasattr(self, "spoilt") else lambda: 1

    def set_extra_state(self, state: Any) -> None:
        assert state == 1


class InSecondEpoch(Callback):
    def __init__(self, act: Any) -> None:
        self.act = act

    def on_epoch_begin(self, net: Any, **kwargs: Any) -> None:
        if len(net.history) == 2:
            self.act(net)


def spoil(net: Any) -> None:
    net.module_.spoilt = True


@pytest.mark.parametrize("files", [{}, {"f_checkpoint": "all"}])
def test_what_is_no_data_ends_the_training(tmp_path: Path, files: dict[str, str]) -> None:
    checkpoint = Checkpoint(monitor=None, dirname=str(tmp_path), **files)
    net = make_net([InSecondEpoch(spoil), checkpoint], module=Odd, epochs=3)

    with pytest.raises(StateError, match=r"_extra_state.*(params|all).*function"):
        net.fit(X, Y)

    assert net.history[:, "event_cp"] == [True, False]
    loaded = make_net(module=Odd)
    load_params(loaded, checkpoint=checkpoint)
    assert len(loaded.history) == 1
    assert {int(state["step"]) for state in parts_of(loaded)["optimizer"]["state"].values()} == {3}


def test_the_end_of_training_raises_too(tmp_path: Path) -> None:
    net = make_net([InSecondEpoch(spoil), TrainEndCheckpoint(dirname=str(tmp_path))], module=Odd)

    with pytest.raises(StateError, match="_extra_state"):
        net.fit(X, Y)

    assert not list(tmp_path.iterdir())


def test_a_directory_that_goes_away_is_an_error(tmp_path: Path) -> None:
    checkpoint = Checkpoint(monitor=None, dirname=str(tmp_path / "run"))
    net = make_net([InSecondEpoch(lambda net: shutil.rmtree(tmp_path / "run")), checkpoint], epochs=3)

    with pytest.raises(SourceMissingError, match=r"/run.*Create the directory first"):
        net.fit(X, Y)

    assert net.history[:, "event_cp"] == [True, False]


def test_a_directory_that_was_never_there_is_an_error(tmp_path: Path) -> None:
    net = make_net([Checkpoint(monitor=None, dirname=str(tmp_path), f_params="sub/params.safetensors")])

    with pytest.raises(SourceMissingError, match=r"/sub"):
        net.fit(X, Y)

    assert not list(tmp_path.iterdir()), "no other part either"


def test_a_directory_in_the_place_of_a_file_is_an_error(tmp_path: Path) -> None:
    tmp_path.joinpath("optimizer.safetensors").mkdir()

    with pytest.raises(TransportError, match=r"optimizer\.safetensors.*directory"):
        make_net([Checkpoint(monitor=None, dirname=str(tmp_path))]).fit(X, Y)

    assert [path.name for path in tmp_path.iterdir()] == ["optimizer.safetensors"]


def test_another_save_is_waited_for_and_then_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_skorch_files, "_PATIENCE_S", 0.1)
    net = make_net([Checkpoint(monitor=None, dirname=str(tmp_path))])

    with transaction(tmp_path, "skorch"), pytest.raises(BusyError, match=str(tmp_path)):
        net.fit(X, Y)
    net.fit(X, Y)

    assert net.history[:, "event_cp"] == [True, True]


def test_a_later_training_loads_the_last_event_that_was_saved(tmp_path: Path) -> None:
    checkpoint = Checkpoint(monitor=None, dirname=str(tmp_path), f_params="p{last_epoch[epoch]}", load_best=False)
    net = make_net([InSecondEpoch(spoil), checkpoint], module=Odd, epochs=3)
    with pytest.raises(StateError):
        net.fit(X, Y)

    load_params(net, checkpoint=checkpoint)

    assert len(net.history) == 1
    del net.module_.spoilt
    assert same(parts_of(net)["module"], parts_of(loaded_from(checkpoint))["module"])


def loaded_from(checkpoint: Checkpoint) -> Any:
    loaded = make_net(module=Odd)
    load_params(loaded, checkpoint=checkpoint)
    return loaded


def test_a_full_disk_leaves_the_epoch_before(tmp_path: Path) -> None:
    if shutil.which("unshare") is None:
        pytest.skip("no unshare(1) to mount a small disk with")
    isolated = ["unshare", "--mount", "--map-root-user"]
    may_mount = subprocess.run(
        [*isolated, "mount", "-t", "tmpfs", "tmpfs", tmp_path], capture_output=True, check=False
    )
    if may_mount.returncode:
        pytest.skip(f"no rights to mount a small disk: {may_mount.stderr!r}")

    done = forks.run(PROGRAM, tmp_path, modules=forks.SKORCH, own_mounts=True)

    assert not done.returncode, done.stderr
    failures = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(failures) > 8, "the disk was hardly ever full"
    for failure in failures:
        assert failure["errno"] == errno.ENOSPC, failure
        assert str(tmp_path) in failure["message"], failure
        assert failure["as before"], failure
        assert failure["loaded"], failure
        assert failure["event"] is False, failure

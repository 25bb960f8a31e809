"""Saves and loads that fail: an error, and what was there is as it was."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest
import torch

import tensorkeep
from tensorkeep.errors import IntegrityError, StateError, TransportError
from tensorkeep.integrations.lightning import AsyncTensorkeepCheckpointIO, TensorkeepCheckpointIO
from tests.support import SUPPORT, forks
from tests.support.integrations.lightning.runs import Gate, Regressor, files, fit, trainer

plugins = pytest.mark.parametrize("plugin", [TensorkeepCheckpointIO, AsyncTensorkeepCheckpointIO])

HERE = SUPPORT / "integrations" / "lightning"


@pytest.mark.parametrize("part", ["state_dict", "optimizer_states.0.state.0.exp_avg"])
def test_a_broken_bit_is_found_before_anything_is_loaded(tmp_path: Path, part: str) -> None:
    fit(tmp_path)
    path = tmp_path / "last.ckpt"
    with tensorkeep.open(path) as file:
        name = next(name for name in file if name.startswith(part))
        place = file.data_start + file.entries[name].data_offsets[0] if hasattr(file, "data_start") else None
        content = bytearray(path.read_bytes())
        start = place if place is not None else content.index(bytes(file[name].load().tobytes()))
    content[start] ^= 1
    path.write_bytes(content)

    with pytest.raises(IntegrityError, match="not those that were saved"):
        fit(tmp_path, ckpt_path=path)
    assert TensorkeepCheckpointIO(verify=False).load_checkpoint(path)["epoch"] == 1


class Secret:
    """Is no data."""


@plugins
def test_what_is_no_data_is_refused_with_its_place_and_nothing_is_written(tmp_path: Path, plugin: Any) -> None:
    module = Regressor(things={"deep": [1, Secret()]})
    with pytest.raises(StateError, match=r"hyper_parameters\.things\.deep\.1.*Secret.*save_hyperparameters"):
        fit(tmp_path, plugin(), module=module)
    assert files(tmp_path) == []


@plugins
def test_a_directory_that_cannot_be_made_is_an_error(tmp_path: Path, plugin: Any) -> None:
    (tmp_path / "file").write_bytes(b"mine")
    made = plugin()
    with pytest.raises(TransportError, match="could not create the directory"):
        made.save_checkpoint({"a": 1}, tmp_path / "file" / "x.ckpt")

    assert (tmp_path / "file").read_bytes() == b"mine"


@plugins
def test_a_directory_that_is_not_writable_is_an_error(plugin: Any) -> None:
    user = os.geteuid()
    with tempfile.TemporaryDirectory() as folder:  # pytest's own are closed to others
        fit(Path(folder), max_epochs=1)
        before = files(Path(folder))
        Path(folder).chmod(0o555)
        if user == 0:
            os.seteuid(65534)  # root may write everywhere
        try:
            with pytest.raises(PermissionError, match="could not write the file"):
                fit(Path(folder), plugin())
        finally:
            os.seteuid(user)
        Path(folder).chmod(0o755)

        assert files(Path(folder)) == before


def test_a_full_disk_is_an_error_and_the_old_checkpoint_stays(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    inside = ["unshare", "--mount", "--map-root-user"]
    if shutil.which("unshare") is None:
        pytest.skip("no unshare(1) to mount a small disk with")
    may_mount = [*inside, "mount", "-t", "tmpfs", "tmpfs", disk]
    if subprocess.run(may_mount, capture_output=True).returncode:
        pytest.skip("no rights to mount a small disk")

    done = forks.run(HERE / "small_disk.py", disk, modules=forks.LIGHTNING, own_mounts=True)

    assert not done.returncode, done.stderr
    assert done.stdout.splitlines() == [f"{errno.ENOSPC} 1 ['epoch=0-step=6.ckpt'] True"] * 2


def test_what_a_killed_slurm_job_leaves_is_not_taken_for_a_checkpoint(tmp_path: Path) -> None:
    io = TensorkeepCheckpointIO()
    io.save_checkpoint({"epoch": 1, "w": torch.ones(3)}, tmp_path / "hpc_ckpt_1.ckpt")
    gate = Gate(tmp_path)
    child = os.fork()
    if not child:
        io.save_checkpoint({"epoch": 2, "w": torch.ones(9), "slow": gate.tensor}, tmp_path / "hpc_ckpt_2.ckpt")
        os._exit(1)
    for _ in range(1000):
        if any("hpc_ckpt_2" in path.name for path in tmp_path.rglob("*")):
            break
        time.sleep(0.01)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)

    made = trainer(tmp_path)
    assert made._checkpoint_connector._hpc_resume_path == str(tmp_path / "hpc_ckpt_1.ckpt")
    io.save_checkpoint({"epoch": 3}, tmp_path / "hpc_ckpt_2.ckpt")
    assert io.load_checkpoint(made._checkpoint_connector._hpc_resume_path)["epoch"] == 3

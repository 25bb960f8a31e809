"""Trains on disks that have room for one checkpoint and no more: `lightning_on_a_small_disk.py FOLDER`.

Prints for each plugin the number of the error, the epoch of the checkpoint that is there, all files, and whether it
is whole.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import tensorkeep
from tensorkeep.errors import TransportError
from tensorkeep.integrations import lightning
from tests.support.integrations.lightning.runs import Regressor, checkpoints, loader, trainer


def train(disk: Path, plugin: str) -> None:
    module = Regressor(width=40_000)  # 4.2 MB of weights and optimizer
    made = trainer(disk, callbacks=[checkpoints(disk)], plugins=[getattr(lightning, plugin)()], max_epochs=4)
    try:
        made.fit(module, loader(), loader(shuffle=False))
    except TransportError as error:
        name = sorted(os.listdir(disk))[0]
        loaded = lightning.TensorkeepCheckpointIO().load_checkpoint(disk / name)
        print(error.errno, loaded["epoch"] + 1, sorted(os.listdir(disk)), tensorkeep.verify(disk / name).is_whole)


if __name__ == "__main__":
    for each in ("TensorkeepCheckpointIO", "AsyncTensorkeepCheckpointIO"):
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=5m", "tmpfs", sys.argv[1]], check=True)
        train(Path(sys.argv[1]), each)
        subprocess.run(["umount", "--lazy", sys.argv[1]], check=True)

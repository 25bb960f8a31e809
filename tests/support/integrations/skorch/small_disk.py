"""Trains a net on a disk with room for one checkpoint and some more: `small_disk_skorch.py FOLDER`.

In a mount namespace of its own. Prints one line of JSON for each attempt, each with a little more room.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import torch

from tensorkeep.errors import TransportError
from tensorkeep.integrations.skorch import Checkpoint, load_params
from tests.support.integrations.skorch.nets import X, Y, make_net, parts_of, same

WIDTH = 4_000


def contents(folder: str) -> dict[str, bytes]:
    found = {}
    for name in os.listdir(folder):
        with open(os.path.join(folder, name), "rb") as file:
            found[name] = file.read()
    return found


def attempt(folder: str, n_kilobytes: int, files: dict[str, Any]) -> bool:
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={n_kilobytes}k", "tmpfs", folder], check=True)
    try:
        checkpoint = Checkpoint(monitor=None, dirname=folder, **files)
        net = make_net([checkpoint], epochs=1, module__width=WIDTH).fit(X, Y)
        before, state = contents(folder), parts_of(net)
        state["module"] = {name: tensor.clone() for name, tensor in state["module"].items()}
        try:
            net.partial_fit(X, Y)
        except TransportError as error:
            loaded = make_net(module__width=WIDTH)
            load_params(loaded, checkpoint=checkpoint)
            said = {
                "errno": error.errno,
                "message": str(error),
                "as before": contents(folder) == before,
                "loaded": same(loaded.module_.state_dict(), state["module"]) and len(loaded.history) == 1,
                "event": net.history[-1, "event_cp"],
            }
            print(json.dumps(said))
            return False
        return len(net.history) == 2
    finally:
        subprocess.run(["umount", folder], check=True)


def main(folder: str) -> None:
    for files in ({}, {"f_checkpoint": "all"}):
        n_kilobytes = 800
        while not attempt(folder, n_kilobytes, files):
            n_kilobytes += 60


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(sys.argv[1])

"""Loads a net again and again while another process saves it: `read_during_saves_skorch.py DIRECTORY SECONDS`.

Some names have the epoch in them, and some do not. Prints the epochs that were seen.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time

from tensorkeep.integrations.skorch import Checkpoint, LoadInitState, load_params
from tests.support.integrations.skorch.nets import X, Y, make_net

N_BATCHES = 3


def epoch_of(checkpoint: Checkpoint) -> int:
    """Load the net, and return the epoch that all its parts are of."""
    net = make_net()
    load_params(net, checkpoint=checkpoint)
    steps = {int(state["step"]) for state in net.optimizer_.state_dict()["state"].values()}
    found = [*steps, int(net.module_.norm.num_batches_tracked)]
    assert set(found) == {N_BATCHES * len(net.history)}, f"parts of several epochs: {len(net.history)}, {found}"
    return len(net.history)


def main(directory: str, seconds: float) -> None:
    checkpoint = Checkpoint(monitor=None, dirname=directory, durable=False, f_params="p{last_epoch[epoch]}")
    make_net([checkpoint], epochs=1).fit(X, Y)
    pid = os.fork()
    if not pid:
        make_net([LoadInitState(checkpoint), checkpoint], epochs=1_000_000).fit(X, Y)
        os._exit(0)
    try:
        end = time.monotonic() + seconds
        epochs = []
        while time.monotonic() < end:
            epochs.append(epoch_of(checkpoint))
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    print(json.dumps(epochs))


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]))

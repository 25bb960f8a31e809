"""A program that saves a file again and again in a child process and kills it, for `test_killed_saves`.

`saver.py FOLDER ROUNDS SEED`: over `FOLDER/model.safetensors`, which must exist. After each kill the file is checked,
and one more save must sweep what the dead one left. Prints one line of JSON.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import signal
import sys
import time

import numpy as np

import tensorkeep

MAX_ELEMENTS = 2_000_000


def tensors(number: int) -> dict[str, np.ndarray]:
    """Return tensors that are recognized as one save: one number everywhere, and sizes that follow from it."""
    n_elements = MAX_ELEMENTS // 2 + number * 7_919 % (MAX_ELEMENTS // 2)
    return {"a": np.full(n_elements, number, np.float32), "b": np.full((3, n_elements), number, np.int8).T}


def save(path: str, number: int) -> None:
    tensorkeep.save(tensors(number), path, metadata={"number": str(number)}, durable=number % 2 == 0)


def check(path: str) -> int:
    """Return the number of the save that the file is of, whole."""
    with tensorkeep.open(path) as file:
        number = int(file.metadata["number"])
        loaded = file.load()
    for name, tensor in tensors(number).items():
        np.testing.assert_array_equal(loaded[name], tensor, strict=True)
    return number


def staged(folder: str) -> list[str]:
    return [name for name in os.listdir(folder) if name.endswith(".tensorkeep-staged")]


def main(folder: str, n_rounds: int, seed: int) -> None:
    """Run the rounds."""
    rng = random.Random(seed)
    path = os.path.join(folder, "model.safetensors")
    result = {"kills": 0, "new": 0, "old": 0, "leftovers": 0, "unswept": 0}
    for round_number in range(n_rounds):
        before = check(path)
        pid = os.fork()
        if not pid:
            for number in itertools.count(before + 1):
                save(path, number)
        time.sleep(rng.random() * 0.03)
        os.kill(pid, signal.SIGKILL)
        _, status = os.waitpid(pid, 0)
        result["kills"] += os.waitstatus_to_exitcode(status) == -signal.SIGKILL
        result["new" if check(path) > before else "old"] += 1
        result["leftovers"] += len(staged(folder))
        save(path, round_number)
        result["unswept"] += len(staged(folder))
    print(json.dumps(result))


if __name__ == "__main__":
    save(os.path.join(sys.argv[1], "model.safetensors"), 0)
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))

"""A program that kills encrypted saves at random times, and looks at all bytes that they ever wrote.

`killed_saves.py FOLDER ROUNDS SEED`: each save is a process that is killed. After each kill the checkpoint must be
one save, whole; and no salt may be in two files with different ciphertext, staged and half written ones included.
Prints one line of JSON.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from base64 import b64decode
from pathlib import Path

import numpy as np

import tensorkeep

KEY = tensorkeep.Key(bytes(range(32)))
BLOCK = 65_552
N_TENSORS = 6


def save(directory: Path, number: int) -> None:
    state = {f"w{n}": np.full(100_000, number, np.float32) for n in range(N_TENSORS)}
    tensorkeep.save_checkpoint(state, directory, encrypt=KEY, max_shard_size="900kB", durable=False)


def number_in(directory: Path) -> int:
    loaded = tensorkeep.load(directory, key=KEY)
    numbers = {float(value) for tensor in loaded.values() for value in np.unique(tensor)}
    assert len(loaded) == N_TENSORS, sorted(loaded)
    assert len(numbers) == 1, numbers
    return int(numbers.pop())


def file_of(content: bytes) -> tuple[bytes, bytes] | None:
    """Return the salt and the blocks of an encrypted file, of which only a part may be written."""
    start = 8 + int.from_bytes(content[:8], "little")
    try:
        metadata = json.loads(content[8:start])["__metadata__"]
    except (ValueError, KeyError):
        return None
    return b64decode(json.loads(metadata["tensorkeep.encryption"])["salt"]), content[start:]


def run(directory: Path, n_rounds: int, seed: int) -> dict[str, int]:
    times = random.Random(seed)
    blocks: dict[tuple[bytes, int], bytes] = {}
    salts: set[bytes] = set()
    n_partial = 0
    save(directory, 0)
    started = time.perf_counter()
    save(directory, 0)
    span_s = 1.2 * (time.perf_counter() - started)
    for number in range(1, n_rounds + 1):
        pid = os.fork()
        if not pid:
            save(directory, number)
            os._exit(0)
        time.sleep(times.uniform(0, span_s))
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        left = [path for path in directory.rglob("*") if path.is_file() and path.stat().st_size > 8]
        n_partial += any(path.parent != directory for path in left)
        for path in left:
            found = file_of(path.read_bytes())
            if found is None:
                continue
            salt, data = found
            salts.add(salt)
            for at in range(0, len(data), BLOCK):
                block = data[at : at + BLOCK]
                if block.count(0) < len(block) // 2:  # not a hole in what is half written
                    known = blocks.setdefault((salt, at), block)
                    assert known[: len(block)] == block[: len(known)], "one key and nonce for two plain texts"
        assert number_in(directory) in range(number + 1)
    return {"rounds": n_rounds, "salts": len(salts), "blocks": len(blocks), "partial": n_partial}


if __name__ == "__main__":
    print(json.dumps(run(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))))

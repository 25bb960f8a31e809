"""A program that opens, loads and verifies a checkpoint again and again, for `test_concurrent`.

`read_during_saves.py FOLDER SECONDS BACKEND`: prints one line of JSON: how many loads there were, of how many
different saves.
"""

from __future__ import annotations

import json
import sys
import time
import warnings

import tensorkeep
from tests.support.checkpoint.numbered_saves import N_TENSORS, number_of


def main(directory: str, seconds: float, backend: str) -> None:
    """Read until the time is up."""
    numbers: list[int] = []
    stop = time.monotonic() + seconds
    while time.monotonic() < stop:
        with tensorkeep.open(directory, backend=backend) as tensors:
            numbers.append(number_of(tensors.load()))
        found = tensorkeep.verify(directory)
        assert found.is_whole, found.findings
        assert found.n_checked == N_TENSORS
        numbers.append(number_of(tensorkeep.load(directory, backend=backend)))
    assert numbers == sorted(numbers), "an older save was read after a newer one"
    print(json.dumps({"loads": len(numbers), "saves": len(set(numbers))}))


if __name__ == "__main__":
    warnings.simplefilter("error")
    main(sys.argv[1], float(sys.argv[2]), sys.argv[3])

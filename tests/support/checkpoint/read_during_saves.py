"""A program that opens, loads and verifies a checkpoint again and again, for `test_concurrent`.

`read_during_saves.py FOLDER LOADS BACKEND`: prints one line of JSON: how many loads there were, of how many
different saves; so many at least, and of three.
"""

from __future__ import annotations

import json
import sys
import warnings

import tensorkeep
from tests.support.checkpoint.numbered_saves import N_TENSORS, number_of


def main(directory: str, n_loads: int, backend: str) -> None:
    """Read until there was enough to see."""
    numbers: list[int] = []
    while len(numbers) < n_loads or len(set(numbers)) < 3:
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
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3])

"""A program that opens, loads and verifies a checkpoint again and again, for `test_concurrent`.

`read_during_saves.py FOLDER SECONDS BACKEND`: reads that long, and longer if it takes longer to make enough loads of
enough saves.
"""

from __future__ import annotations

import sys
import time
import warnings
from typing import Final

import tensorkeep
from tests.support.checkpoint.numbered_saves import N_TENSORS, number_of

_MIN_LOADS: Final = 5
_MIN_SAVES: Final = 3


def main(directory: str, seconds: float, backend: str) -> None:
    """Read until the time is up and enough was read."""
    numbers: list[int] = []
    stop = time.monotonic() + seconds
    while time.monotonic() < stop or len(numbers) < _MIN_LOADS or len(set(numbers)) < _MIN_SAVES:
        with tensorkeep.open(directory, backend=backend) as tensors:
            numbers.append(number_of(tensors.load()))
        found = tensorkeep.verify(directory)
        assert found.is_whole, found.findings
        assert found.n_checked == N_TENSORS
        numbers.append(number_of(tensorkeep.load(directory, backend=backend)))
    assert numbers == sorted(numbers), "an older save was read after a newer one"


if __name__ == "__main__":
    warnings.simplefilter("error")
    main(sys.argv[1], float(sys.argv[2]), sys.argv[3])

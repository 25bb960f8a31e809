"""How long tests of chance run: seconds in `make test`, and as long as one likes in `make soak`.

`make soak SCALE=2 SEED=7` sets `TENSORKEEP_SOAK=2` and `TENSORKEEP_SEED=7`, and runs the tests marked `soak`: those
that take a number of rounds from here, and all property tests.
"""

from __future__ import annotations

import os

SOAK = float(os.environ.get("TENSORKEEP_SOAK", "0"))
"""By what the long counts are multiplied; 0 takes the short ones."""

SEED = int(os.environ.get("TENSORKEEP_SEED", "0"))
"""Of all that these tests choose at random."""


def rounds(short: int, long: int) -> int:
    """Return how many kills, damaged bytes, broken inputs or examples to try."""
    return max(1, round(long * SOAK)) if SOAK else short

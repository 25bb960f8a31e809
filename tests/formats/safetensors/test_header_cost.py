"""Headers made to cost much end in bounded time and memory, with a verdict in few words.

`python -m fuzz.hostile_headers --megabytes 100` measures them at full size, beside the reference.
"""

from __future__ import annotations

import pytest

from fuzz.hostile_headers import SHAPES, cost_of

HEADER_NBYTES = 10_000_000
MAX_SECONDS = 10
"""Honest headers of this size take 0.3 s; the machine may be busy."""
MAX_PEAK_NBYTES = 50 * HEADER_NBYTES


WORST = [shape for shape in SHAPES if not shape.startswith("valid,")] + ["valid, an emoji and a colon"]


@pytest.mark.parametrize("shape", WORST)
def test_a_hostile_header_costs_little(shape: str) -> None:
    header = SHAPES[shape](HEADER_NBYTES)

    cost = cost_of(header, timeout_s=MAX_SECONDS + 5)

    assert HEADER_NBYTES * 0.9 < len(header) <= HEADER_NBYTES * 1.1
    assert cost.outcome.startswith(("refused: Error while deserializing header", "1 tensors", "0 tensors", "1"))
    assert cost.seconds < MAX_SECONDS
    assert cost.peak_nbytes < MAX_PEAK_NBYTES

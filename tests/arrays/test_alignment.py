"""Arrays over a buffer are moved to aligned addresses, neighbors together, with their elements and in their order."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tensorkeep.arrays import adapter_for
from tensorkeep.arrays._alignment import aligned_views
from tensorkeep.arrays.elements import aligned_block
from tensorkeep.entries import TensorEntry

SIZES = st.lists(st.sampled_from([0, 4, 8, 60, 64, 128, 4096]), max_size=40)


@given(
    sizes=SIZES, phase=st.integers(0, 80).map(lambda n: 4 * n), gap=st.sampled_from([0, 4, 64]), order=st.randoms()
)
def test_elements_and_order_stay(sizes: list[int], phase: int, gap: int, order: object) -> None:
    stops = np.cumsum([size + gap for size in sizes], dtype=int)
    entries = {
        f"t{place}": TensorEntry("U8", (size,), (int(stop) - size, int(stop)))
        for place, (size, stop) in enumerate(zip(sizes, stops, strict=True))
    }
    names = list(entries)
    order.shuffle(names)  # type: ignore[attr-defined]
    entries = {name: entries[name] for name in names}
    buffer = aligned_block(phase + sum(sizes) + gap * len(sizes), 64)
    buffer[:] = np.random.default_rng(0).integers(0, 256, len(buffer), np.uint8)

    arrays = aligned_views(adapter_for("numpy"), buffer.data, entries, phase, 64)

    assert list(arrays) == names
    for name, array in arrays.items():
        start, stop = entries[name].data_offsets
        assert array.tobytes() == buffer[phase + start : phase + stop].tobytes()
        assert not array.nbytes or array.__array_interface__["data"][0] % 64 == 0


def test_neighbors_are_moved_together_and_aligned_ones_not_at_all() -> None:
    buffer = aligned_block(64 * 100 + 8, 64)
    entries = {f"t{n}": TensorEntry("F32", (16,), (64 * n, 64 * n + 64)) for n in range(100)}

    def addresses(base: int) -> list[int]:
        arrays = aligned_views(adapter_for("numpy"), buffer.data, entries, base, 64)
        return [array.__array_interface__["data"][0] for array in arrays.values()]

    start = buffer.__array_interface__["data"][0]
    assert addresses(0) == [start + 64 * n for n in range(100)]
    moved = addresses(8)
    assert moved == [moved[0] + 64 * n for n in range(100)]

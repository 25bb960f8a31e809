"""What passes through the host buffers: every byte once, where the device expects it."""

from __future__ import annotations

from functools import partial

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tensorkeep.digests import digest_of
from tensorkeep.tensors.to_device import Part, plan_tasks
from tensorkeep.transport import ByteRange, DigestedRanges, MemorySource, VerifyingSource

BUFFER_NBYTES = 2**20


@st.composite
def parts_of_files(draw: st.DrawFn) -> list[Part]:
    parts: list[Part] = []
    for number in range(draw(st.integers(1, 3))):
        position = draw(st.integers(0, 70))
        spans: list[tuple[ByteRange, int]] = []
        sizes = st.one_of(st.integers(0, 5000), st.integers(250_000, 3_000_000))
        for n_elements in draw(st.lists(sizes, max_size=12)):
            itemsize = draw(st.sampled_from([1, 2, 4, 8, 16]))
            position += draw(st.sampled_from([0, 0, 0, 1, 64, 10_000]))
            spans.append((ByteRange(position, position + n_elements * itemsize), itemsize))
            position += n_elements * itemsize
        source = MemorySource(bytes(position), name=f"file {number}")
        parts += [Part(len(parts) + place, source, span, size) for place, (span, size) in enumerate(spans)]
    return draw(st.permutations(parts))


@given(parts_of_files())
def test_every_byte_is_moved_once_and_is_where_the_move_says(parts: list[Part]) -> None:
    by_target = {part.target: part for part in parts}
    moved = {part.target: np.zeros(len(part.span), np.uint8) for part in parts}
    for task in plan_tasks(parts, BUFFER_NBYTES):
        for transfer in task:
            end = 0
            for move in transfer.moves:
                part = by_target[move.target]
                assert end <= move.start <= move.stop <= BUFFER_NBYTES
                assert move.start % part.itemsize == move.offset % part.itemsize == 0
                (run,) = (run for run in transfer.runs if run.start <= move.start and move.stop <= run.stop)
                assert transfer.source is part.source
                assert run.offset + move.start - run.start == part.span.start + move.offset
                moved[move.target][move.offset : move.offset + move.stop - move.start] += 1
                end = move.stop
    assert all((times == 1).all() for times in moved.values())


def test_small_neighbors_are_read_at_once() -> None:
    source = MemorySource(bytes(2**20), name="file")
    parts = [Part(place, source, ByteRange(place * 2048, place * 2048 + 2048), 4) for place in range(300)]

    (task,) = plan_tasks(parts, BUFFER_NBYTES)

    (transfer,) = task
    assert len(transfer.runs) == 1
    assert len(transfer.moves) == 300


def test_pieces_with_a_digest_stay_in_order_and_others_are_shared_out() -> None:
    data = bytes(3 * BUFFER_NBYTES)
    span = ByteRange(0, len(data))
    source = MemorySource(data, name="file")
    checked = VerifyingSource(source, partial(DigestedRanges.of, {"x": span}, {"x": digest_of(data)}))

    assert [len(task) for task in plan_tasks([Part(0, source, span, 1)], BUFFER_NBYTES)] == [1, 1, 1]
    assert [len(task) for task in plan_tasks([Part(0, checked, span, 1)], BUFFER_NBYTES)] == [3]

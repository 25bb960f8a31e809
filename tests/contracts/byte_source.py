"""The contract of a byte source: any order, any thread, the same bytes; an error, and never other bytes.

A new source passes it by one class with one line:

    class TestMine(ByteSourceContract):
        open = staticmethod(lambda path: MySource(path))

A source that needs a server overrides `opened`; one whose bytes can change while it is open overrides `cut`.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, closing
from pathlib import Path
from typing import ClassVar

import pytest

from tensorkeep.errors import TensorkeepError, TransportError
from tensorkeep.transport import ByteRange, ByteSource, reads_runs

CONTENT = bytes(place % 251 for place in range(10_000))
BIG = bytes(range(256)) * (24 * 2**20 // 256)
"""More than one read, and enough that several threads read it."""

SPANS = [(0, 0), (0, 1), (0, 8), (3, 3), (9_999, 10_000), (17, 4_711), (0, 10_000), (10_000, 10_000)]
BEYOND = [(9_999, 10_001), (10_000, 10_001), (0, 10_001), (20_000, 20_010)]


def piece_of(span: ByteRange) -> bytes:
    return CONTENT[span.start : span.stop]


class ByteSourceContract:
    """What every source does; subclasses say how one is opened."""

    open: ClassVar[Callable[[Path], ByteSource]]
    """Opens a source with the bytes of a file."""

    ends_with_close: ClassVar[bool] = True
    """Whether nothing can be read after `close`; a file object stays its owner's."""

    def opened(self, path: Path) -> AbstractContextManager[ByteSource]:
        """Open a source for the block of a test."""
        return closing(type(self).open(path))

    def cut(self, path: Path) -> None:
        """Make the bytes under an open source fewer: the first half is left."""
        pytest.skip("nobody else can change these bytes")

    @pytest.fixture
    def path(self, tmp_path: Path) -> Path:
        path = tmp_path / "content"
        path.write_bytes(CONTENT)
        return path

    @pytest.fixture
    def source(self, path: Path) -> Iterator[ByteSource]:
        with self.opened(path) as source:
            yield source

    def test_its_size_and_name_are_known(self, source: ByteSource) -> None:
        assert source.nbytes == len(CONTENT)
        assert source.name
        assert source.gap_nbytes >= 0

    @pytest.mark.parametrize("span", [ByteRange(*span) for span in SPANS])
    def test_a_range_is_read(self, source: ByteSource, span: ByteRange) -> None:
        assert bytes(source.read(span)) == piece_of(span)
        assert b"".join(map(bytes, source.pieces(span))) == piece_of(span)

    def test_given_memory_is_filled_in_any_order(self, source: ByteSource) -> None:
        places = [(9_000, 1_000), (0, 10), (5, 10), (10_000, 0), (1, 1), (4_000, 0), (4_000, 300)]
        memory = bytearray(b"\xff" * 2_000)  # what is not asked for stays
        view, used, parts = memoryview(memory), 0, []
        for offset, length in places:
            parts.append((offset, view[used : used + length]))
            used += length

        source.read_into(iter(parts))

        assert memory[:used] == b"".join(CONTENT[offset : offset + length] for offset, length in places)
        assert memory[used:] == b"\xff" * (2_000 - used)

    def test_nothing_may_be_asked_for(self, source: ByteSource) -> None:
        source.read_into([])
        source.read_into([(10_000, memoryview(bytearray()))])

    def test_runs_are_read_or_declined(self, source: ByteSource) -> None:
        starts, nbytes = list(range(0, 9_000, 700)), 16
        into = bytearray(len(starts) * nbytes)

        if reads_runs(source) and source.read_runs(starts, nbytes, memoryview(into)):
            assert into == b"".join(CONTENT[start : start + nbytes] for start in starts)

    @pytest.mark.parametrize("span", [ByteRange(*span) for span in BEYOND])
    def test_past_the_end_is_an_error_and_not_fewer_bytes(self, source: ByteSource, span: ByteRange) -> None:
        with pytest.raises((TensorkeepError, ValueError)):
            source.read(span)
        with pytest.raises((TensorkeepError, ValueError)):
            source.read_into([(span.start, memoryview(bytearray(len(span))))])

        assert bytes(source.read(ByteRange(0, 100))) == CONTENT[:100], "it is of use afterwards"

    @pytest.mark.parametrize("span", [(0, 10_000), (5_000, 5_003), (4_096, 8_192), (9_999, 10_000)])
    def test_a_mapping_is_private_and_outlives_the_source(self, source: ByteSource, span: tuple[int, int]) -> None:
        mapping = source.map(ByteRange(*span))
        if mapping is None:
            return
        view, first = memoryview(mapping[0]), mapping[1]
        inside = slice(span[0] - first, span[1] - first)
        assert view[inside] == CONTENT[slice(*span)]
        view[inside] = bytes(len(view[inside]))
        again = source.map(ByteRange(*span))
        assert again is not None

        assert bytes(source.read(ByteRange(*span))) == CONTENT[slice(*span)]
        assert memoryview(again[0])[inside] == CONTENT[slice(*span)]
        source.close()
        del source, mapping, again
        gc.collect()
        assert view[inside] == bytes(len(view[inside]))
        assert bytes(view[: inside.start]) == CONTENT[first : span[0]]

    def test_many_threads_read_at_once(self, source: ByteSource) -> None:
        start = threading.Barrier(8)

        def read(worker: int) -> bool:
            start.wait(60)
            spans = [ByteRange(place, place + 97) for place in range(worker, 9_000, 389)]
            return all(bytes(source.read(span)) == piece_of(span) for span in spans)

        with ThreadPoolExecutor(8) as workers:
            assert all(workers.map(read, range(8)))

    def test_a_large_read_is_the_sum_of_its_pieces(self, path: Path) -> None:
        path.write_bytes(BIG)
        whole, tail = bytearray(len(BIG) - 3), bytearray(1_000)
        with self.opened(path) as source:
            source.read_into([(3, memoryview(whole)), (len(BIG) - 1_000, memoryview(tail))])

            assert whole == BIG[3:]
            assert tail == BIG[-1_000:]
            assert b"".join(map(bytes, source.pieces(ByteRange(5, 9 * 2**20)))) == BIG[5 : 9 * 2**20]

    def test_an_empty_file_is_a_source_of_nothing(self, path: Path) -> None:
        path.write_bytes(b"")
        with self.opened(path) as source:
            assert source.nbytes == 0
            assert bytes(source.read(ByteRange(0, 0))) == b""
            assert b"".join(map(bytes, source.pieces(ByteRange(0, 0)))) == b""
            source.read_into([])

    def test_what_was_read_stays_and_nothing_more_is_read_after_closing(self, source: ByteSource) -> None:
        before = source.read(ByteRange(50, 60))
        source.close()
        source.close()

        assert bytes(before) == CONTENT[50:60]
        if self.ends_with_close:
            with pytest.raises(TransportError, match="closed"):
                source.read(ByteRange(9_000, 9_500))
            with pytest.raises(TransportError, match="closed"):
                source.read_into([(9_000, memoryview(bytearray(500)))])

    def test_bytes_that_changed_are_an_error_and_not_other_bytes(self, path: Path) -> None:
        with self.opened(path) as source:
            self.cut(path)

            with pytest.raises(TransportError):
                source.read(ByteRange(4_000, 10_000))
            with pytest.raises(TransportError):
                source.read_into([(4_000, memoryview(bytearray(6_000)))])

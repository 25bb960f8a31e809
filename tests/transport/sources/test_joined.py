"""`JoinedSource` against the plain byte string that it stands for."""

from __future__ import annotations

import pickle
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import hypothesis.strategies as st
import pytest
from hypothesis import given

from tensorkeep.errors import TransportError
from tensorkeep.transport import ByteRange, ByteSource, JoinedSource, LocalFile, MemorySource

SIZE = 12_000
CONTENTS = [bytes((place * factor) % 251 for place in range(SIZE)) for factor in (1, 7, 11)]


@pytest.fixture(scope="module", params=["mmap", "pread", "bytes"])
def sources(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[ByteSource]:
    if request.param == "bytes":
        return [MemorySource(content) for content in CONTENTS]
    folder = tmp_path_factory.mktemp("parts")
    made: list[ByteSource] = []
    for place, content in enumerate(CONTENTS):
        (folder / str(place)).write_bytes(content)
        made.append(LocalFile(str(folder / str(place)), backend=request.param))
    return made


PART = st.tuples(st.integers(0, 2), st.integers(0, SIZE), st.sampled_from([0, 1, 5, 700, 5_000]))


def joined_of(sources: list[ByteSource], parts: list[tuple[int, int, int]]) -> tuple[JoinedSource, bytes]:
    spans = [(place, ByteRange(start, min(start + length, SIZE))) for place, start, length in parts]
    expected = b"".join(CONTENTS[place][span.start : span.stop] for place, span in spans)
    return JoinedSource([(sources[place], span) for place, span in spans], "whole"), expected


@given(parts=st.lists(PART, max_size=6), data=st.data())
def test_it_is_the_concatenation(
    sources: list[ByteSource], parts: list[tuple[int, int, int]], data: st.DataObject
) -> None:
    source, expected = joined_of(sources, parts)
    bounds = st.integers(0, len(expected))
    spans = [ByteRange(*sorted(pair)) for pair in data.draw(st.lists(st.tuples(bounds, bounds), max_size=4))]
    buffers = [bytearray(len(span)) for span in spans]

    source.read_into((span.start, memoryview(buffer)) for span, buffer in zip(spans, buffers, strict=True))

    assert source.nbytes == len(expected)
    for span, buffer in zip(spans, buffers, strict=True):
        wanted = expected[span.start : span.stop]
        assert bytes(buffer) == wanted
        assert bytes(source.read(span)) == wanted
        assert b"".join(bytes(piece) for piece in source.pieces(span)) == wanted
        mapping = source.map(span) if len(span) else None
        if mapping is not None:
            view, first = memoryview(mapping[0]), mapping[1]
            assert first >= 0
            assert bytes(view[span.start - first : span.stop - first]) == wanted


def test_a_range_inside_one_part_is_mapped_privately_where_its_source_maps(sources: list[ByteSource]) -> None:
    parts = [(sources[0], ByteRange(5_000, 5_010)), (sources[1], ByteRange(4_100, 12_000))]
    source = JoinedSource(parts, "whole")
    spans = [ByteRange(0, 10), ByteRange(10, 30), ByteRange(6_000, 7_910)]
    expected = CONTENTS[0][5_000:5_010] + CONTENTS[1][4_100:]

    assert source.map(ByteRange(9, 11)) is None
    for span in spans:
        mapping = source.map(span)
        assert (mapping is None) == (sources[0].map(ByteRange(0, 1)) is None)
        if mapping is not None:
            view = memoryview(mapping[0])[span.start - mapping[1] : span.stop - mapping[1]]
            view[:] = bytes(len(view))
            assert bytes(source.read(span)) == expected[span.start : span.stop]


def test_many_threads_read_over_the_seams(sources: list[ByteSource]) -> None:
    source, expected = joined_of(sources, [(0, 7, 700), (1, 0, 5_000), (0, 7_000, 5_000), (2, 3, 5_000)])
    start = threading.Barrier(6)

    def read(worker: int) -> bool:
        start.wait()
        spans = [ByteRange(place, min(place + 997, len(expected))) for place in range(worker, len(expected), 89)]
        return all(bytes(source.read(span)) == expected[span.start : span.stop] for span in spans)

    with ThreadPoolExecutor(6) as workers:
        assert all(workers.map(read, range(6)))


def test_a_range_outside_is_refused(sources: list[ByteSource]) -> None:
    with pytest.raises(ValueError, match="is outside the 12,000 bytes"):
        JoinedSource([(sources[0], ByteRange(0, SIZE + 1))], "whole")
    source = JoinedSource([(sources[0], ByteRange(10, 20))], "whole")
    with pytest.raises(ValueError, match="is outside the 10 bytes of whole"):
        source.read(ByteRange(0, 11))


def test_closed_it_reads_no_more_and_leaves_its_sources_open(sources: list[ByteSource]) -> None:
    source = JoinedSource([(sources[0], ByteRange(10, 20))], "whole")
    source.close()

    with pytest.raises(TransportError, match="File is closed"):
        source.read(ByteRange(0, 1))
    assert bytes(sources[0].read(ByteRange(10, 20))) == CONTENTS[0][10:20]


def test_it_pickles_with_its_files(tmp_path: Path) -> None:
    (tmp_path / "part").write_bytes(CONTENTS[0])
    file = LocalFile(str(tmp_path / "part"))
    source = JoinedSource([(file, ByteRange(10, 20)), (file, ByteRange(0, 5))], "whole")

    copy = pickle.loads(pickle.dumps(source))

    assert (copy.name, copy.nbytes) == ("whole", 15)
    assert bytes(copy.read(ByteRange(0, 15))) == CONTENTS[0][10:20] + CONTENTS[0][:5]

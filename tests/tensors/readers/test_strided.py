"""Strided views of a storage give what NumPy's and torch's own give, wherever it lies and in either byte order."""

from __future__ import annotations

import pickle
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import pairwise, product
from math import prod
from operator import mul
from pathlib import Path
from typing import Any, NamedTuple

import hypothesis.strategies as st
import ml_dtypes
import numpy as np
import pytest
import torch
from hypothesis import example, given, settings

import tensorkeep
from tensorkeep.dtypes import ALL_BY_NAME, BY_NAME
from tensorkeep.entries import TensorEntry
from tensorkeep.errors import DtypeError, LimitError, SelectionError, UnsupportedError
from tensorkeep.limits import MAX_EXPANDED_NBYTES
from tensorkeep.tensors import Layout, LazyTensor, StoredTensor, StridedReader, TensorReader
from tensorkeep.tensors.indexing._boxes import cut_into_boxes
from tensorkeep.tensors.indexing._selection import Selection
from tensorkeep.transport import ByteRange, ByteSource, JoinedSource, LocalFile, MemorySource
from tests.support.peak_memory import with_peak
from tests.support.soak import rounds
from tests.support.tensors.index_strategies import indices
from tests.support.tensors.plain_files import Known, same_bits
from tests.tensors.indexing.test_selection import is_single_boolean, numpy_says, refused_as_out_of_bounds

NAMES = ["F32", "I64", "BOOL", "U8", "F16", "BF16", "C64", "F64", "F8_E4M3"]
COMPLEX = ["C32", "C64", "C128"]
N_ELEMENTS = 60


def joined(path: Path) -> ByteSource:
    file = LocalFile(str(path))
    half = file.nbytes // 2
    return JoinedSource([(file, ByteRange(0, half)), (file, ByteRange(half, file.nbytes))], "joined")


SOURCES: dict[str, Callable[[Path], ByteSource]] = {
    "mmap": lambda path: LocalFile(str(path), backend="mmap"),
    "pread": lambda path: LocalFile(str(path), backend="pread"),
    "memory": lambda path: MemorySource(path.read_bytes()),
    "joined": joined,
}
EACH_SOURCE = pytest.mark.parametrize("way", SOURCES)


@contextmanager
def source_of(data: bytes, way: str) -> Iterator[ByteSource]:
    with tempfile.NamedTemporaryFile() as file:
        file.write(data)
        file.flush()
        yield SOURCES[way](Path(file.name))


class View(NamedTuple):
    """A view of a storage of random numbers, and how it lies in a file."""

    dtype: str
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    is_big_endian: bool = False
    padding: int = 0

    @property
    def stored(self) -> bytes:
        """The bytes of a file: padding, and the storage, made without tensorkeep's help."""
        data = np.random.default_rng(7).bytes(N_ELEMENTS * ALL_BY_NAME[self.dtype].itemsize)
        if self.dtype == "BOOL":
            data = bytes(byte & 1 for byte in data)
        return bytes(self.padding) + data

    @property
    def storage(self) -> np.ndarray[Any, Any]:
        """The storage, shape (60,), in the machine's byte order; C32 as pairs, shape (60, 2)."""
        data = self.stored[self.padding :]
        order = ">" if self.is_big_endian else "<"
        if self.dtype == "C32":
            return np.frombuffer(data, f"{order}f2").astype("f2").reshape(-1, 2)
        row = ALL_BY_NAME[self.dtype]
        if row.is_in_numpy:
            return np.frombuffer(data, np.dtype(row.numpy).newbyteorder(order)).astype(row.numpy)
        bits = np.frombuffer(data, np.dtype(row.bits_name).newbyteorder(order)).astype(row.bits_name)
        return bits.view(getattr(ml_dtypes, row.numpy))

    @property
    def array(self) -> np.ndarray[Any, Any]:
        storage = self.storage
        steps = [stride * storage.itemsize for stride in self.strides]
        return np.lib.stride_tricks.as_strided(storage[self.offset :], self.shape, steps)

    def lazy(self, source: ByteSource, framework: str = "numpy", **changes: Any) -> LazyTensor:
        row = ALL_BY_NAME[self.dtype]
        start = self.padding + self.offset * row.itemsize
        layout = Layout(start, self.strides, self.is_big_endian, **changes)
        entry = TensorEntry(self.dtype, self.shape, (0, row.nbytes(prod(self.shape))))
        return LazyTensor("w", entry, StridedReader(TensorReader(source, 0, framework), layout))


@st.composite
def views(draw: st.DrawFn, names: list[str] = NAMES) -> View:
    """Draw a view inside of its storage: strides and shape first, shrunk until it fits."""
    ndim = draw(st.integers(0, 4))
    strides = draw(st.tuples(*[st.sampled_from([0, 1, 1, 2, 3, 5, 8, 13])] * ndim))
    shape = list(draw(st.tuples(*[st.integers(0, 6)] * ndim)))
    offset = draw(st.integers(0, N_ELEMENTS - 1))
    while prod(shape) and offset + sum((n - 1) * s for n, s in zip(shape, strides, strict=True)) >= N_ELEMENTS:
        widest = max(range(ndim), key=lambda axis: (shape[axis] - 1) * strides[axis])
        shape[widest] -= 1
    name = draw(st.sampled_from(names))
    return View(name, offset, tuple(shape), strides, draw(st.booleans()), draw(st.integers(0, 9)))


FLAT = View("F32", 3, (7, 4), (4, 1))
TRANSPOSED = View("F32", 3, (4, 7), (1, 4), True, 1)


@EACH_SOURCE
@given(view=views(), data=st.data())
@settings(max_examples=rounds(100, 4_000))
def test_any_index_means_what_it_means_in_numpy(way: str, view: View, data: st.DataObject) -> None:
    index = data.draw(indices(view.shape))
    expected = None if is_single_boolean(index) else numpy_says(view.array, index)

    with source_of(view.stored, way) as source:
        lazy = view.lazy(source)
        if expected is None:
            with pytest.raises(SelectionError):
                lazy[index]
        elif expected.size or not refused_as_out_of_bounds(lazy, index):
            part = lazy[index]
            assert same_bits(part, expected)
            assert part.flags.writeable
            assert part.flags.aligned


@EACH_SOURCE
@given(view=views())
@example(view=FLAT)
@example(view=TRANSPOSED)
@settings(max_examples=rounds(60, 2_000))
def test_every_way_of_reading_gives_the_same(way: str, view: View) -> None:
    with source_of(view.stored, way) as source:
        lazy = view.lazy(source)
        loaded = lazy.load()

        assert same_bits(loaded, view.array)
        assert loaded.flags.c_contiguous
        assert loaded.flags.writeable
        assert same_bits(np.asarray(view.lazy(source, "torch")), view.array)
        assert b"".join(bytes(piece) for piece in lazy.tensor_to_write().buffers()) == view.array.tobytes()
        assert (lazy.shape, lazy.dtype, lazy.nbytes) == (view.shape, view.dtype, view.array.nbytes)
        assert (lazy.source, lazy.span, lazy.digest, lazy.view()) == (None, None, None, None)


@EACH_SOURCE
@given(view=views(), data=st.data())
def test_runs_of_elements_are_those_of_the_flat_array(way: str, view: View, data: st.DataObject) -> None:
    flat = np.ascontiguousarray(view.array).reshape(-1)
    start = data.draw(st.integers(0, flat.size))
    stop = data.draw(st.integers(start, flat.size))

    with source_of(view.stored, way) as source:
        lazy = view.lazy(source)
        assert same_bits(lazy._reader.read_run("w", lazy._entry, start, stop), flat[start:stop])


@EACH_SOURCE
@given(view=views([*NAMES, "C32", "C128"]), is_conj=st.booleans(), is_neg=st.booleans())
@example(view=View("C64", 1, (3, 4), (8, 2), True), is_conj=True, is_neg=True)
@settings(max_examples=rounds(75, 3_000))
def test_torch_reads_the_same_views(way: str, view: View, is_conj: bool, is_neg: bool) -> None:
    is_neg = is_neg and view.dtype not in {"BOOL", "F8_E4M3"}
    row = ALL_BY_NAME[view.dtype]
    dtype = getattr(torch, row.torch or "")
    storage = torch.from_numpy(view.storage.view(np.uint8).reshape(-1).copy()).view(dtype)
    expected = torch.as_strided(storage, view.shape, view.strides, view.offset)
    if is_neg:
        expected = -expected
    if is_conj:
        expected = expected.conj().resolve_conj()

    with source_of(view.stored, way) as source:
        lazy = view.lazy(source, "torch", is_conj=is_conj, is_neg=is_neg)
        for found in (lazy.load(), lazy[...]):
            assert found.dtype == dtype
            assert tuple(found.shape) == view.shape
            assert found.is_contiguous()
            assert same_numbers(found, expected)
        if view.shape and view.shape[0]:
            assert same_numbers(lazy[-1], expected[-1])


def same_numbers(found: torch.Tensor, expected: torch.Tensor) -> bool:
    """Say whether two tensors have the same bits, but for which NaN is a NaN, which torch changes in passing."""
    if found.is_complex():
        found, expected = torch.view_as_real(found), torch.view_as_real(expected)
    if not found.is_floating_point():
        return torch.equal(found, expected)
    wide, known = found.to(torch.float64).numpy(), expected.to(torch.float64).numpy()
    return np.array_equal(wide, known, equal_nan=True) and bool(
        ((np.signbit(wide) == np.signbit(known)) | np.isnan(known)).all()
    )


@EACH_SOURCE
@pytest.mark.parametrize("framework", ["numpy", "torch"])
def test_views_are_cast_and_saved_like_any_tensor(way: str, framework: str, tmp_path: Path) -> None:
    wanted = TRANSPOSED.array.astype(ml_dtypes.bfloat16)
    with source_of(TRANSPOSED.stored, way) as source:
        lazy = TRANSPOSED.lazy(source, framework)
        tensorkeep.save({"w": lazy, "half": lazy.cast("bf16")}, tmp_path / "saved", durable=False)
        part = lazy.cast("bf16")[1:3, ::2]

    with tensorkeep.open(tmp_path / "saved") as saved:
        assert same_bits(saved["w"].load(), TRANSPOSED.array)
        assert saved["half"].load().astype("f4").tolist() == wanted.astype("f4").tolist()
    part = part.view(torch.int16).numpy().view(ml_dtypes.bfloat16) if framework == "torch" else part
    assert same_bits(part, wanted[1:3, ::2])


@EACH_SOURCE
def test_views_pickle_and_threads_may_share_them(way: str, tmp_path: Path) -> None:
    path = tmp_path / "storage"
    path.write_bytes(TRANSPOSED.stored)
    lazy = TRANSPOSED.lazy(SOURCES[way](path))
    copy = pickle.loads(pickle.dumps(lazy))
    with ThreadPoolExecutor(8) as threads:
        loaded = list(threads.map(lambda place: copy[place % 4], range(64)))

    assert all(same_bits(row, TRANSPOSED.array[place % 4].copy()) for place, row in enumerate(loaded))


def test_views_of_one_file_share_one_mapping(tmp_path: Path) -> None:
    path = tmp_path / "storage"
    path.write_bytes(TRANSPOSED.stored)
    stored = TensorReader(LocalFile(str(path), backend="mmap"), 0, "numpy")
    entry = TensorEntry("F32", (4, 7), (0, 112))
    for _ in range(50):
        lazy = LazyTensor("w", entry, StridedReader(stored, Layout(13, (1, 4), is_big_endian=True)))
        assert same_bits(lazy[...], TRANSPOSED.array)

    maps = Path("/proc/self/maps").read_text(encoding="utf-8")
    assert maps.count(str(path)) == 1


def written_transposed(path: Path, backend: Any, shape: tuple[int, int]) -> tuple[int, list[int]]:
    """Return how many elements a transposed view is written as, and where there are any but zeros."""
    source = LocalFile(str(path), backend=backend)
    entry = TensorEntry("F32", shape, (0, 4 * shape[0] * shape[1]))
    lazy = LazyTensor("w", entry, StridedReader(TensorReader(source, 0, "torch"), Layout(0, (1, shape[0]))))
    written, found = 0, []
    for piece in lazy.tensor_to_write().buffers():
        numbers = np.frombuffer(piece, np.float32)
        found += [written + int(place) for place in numbers.nonzero()[0]]
        written += numbers.size
        del piece, numbers
    return written, found


@pytest.mark.parametrize("backend", ["mmap", "pread"])
@pytest.mark.parametrize("side", [4096, 20_000])
def test_a_large_transposed_matrix_is_written_in_little_memory(tmp_path: Path, backend: Any, side: int) -> None:
    path = tmp_path / "storage"
    n_rows = 2**28 // (4 * side)
    with path.open("wb") as file:
        file.truncate(4 * side * n_rows)  # 256 MiB that take no room
        file.seek(4 * (side * 5 + 7))
        file.write(np.float32(1.5).tobytes())

    result, peak = with_peak(written_transposed, path, backend, (side, n_rows))

    assert result == (side * n_rows, [7 * n_rows + 5])
    assert peak < 160 * 2**20


@st.composite
def ordered_selections(draw: st.DrawFn) -> tuple[Selection, tuple[int, ...]]:
    """Draw positions along some axes, and strides in falling order that leave gaps or overlap."""
    positions = st.lists(st.integers(0, 9), min_size=1, max_size=5, unique=True).map(sorted).map(np.array)
    ranges = st.builds(range, st.integers(0, 3), st.integers(4, 9), st.integers(1, 4))
    axes = tuple(draw(st.lists(positions | ranges, max_size=4)))
    strides = draw(st.lists(st.integers(1, 12), min_size=len(axes), max_size=len(axes)))
    return Selection((10,) * len(axes), axes, ()), tuple(sorted(strides, reverse=True))


@given(
    case=ordered_selections(),
    bits=st.sampled_from([8, 32, 128]),
    max_gap_nbytes=st.integers(1, 64),
    max_nbytes=st.integers(1, 64),
)
@example(case=(Selection((2, 2, 2), (range(2),) * 3, ()), (3, 3, 1)), bits=8, max_gap_nbytes=9, max_nbytes=2)
@settings(max_examples=rounds(150, 6_000))
def test_reads_of_a_view_are_complete_and_bounded(
    case: tuple[Selection, tuple[int, ...]], bits: int, max_gap_nbytes: int, max_nbytes: int
) -> None:
    selection, strides = case
    times_filled = np.zeros(selection.block_shape, int)
    for box in cut_into_boxes(selection, bits, strides=strides, max_gap_nbytes=max_gap_nbytes, max_nbytes=max_nbytes):
        times_filled[box.into] += 1
        for axis, whole, into in zip(box.axes, selection.axes, box.into, strict=True):
            assert list(axis) == list(whole[into])
        wanted = [sum(map(mul, map(int, place), strides)) for place in product(*box.axes)]
        assert (box.start, box.stop) == (min(wanted), max(wanted) + 1)
        assert box.is_dense == (wanted == list(range(box.start, box.stop)))
        if not box.is_dense:
            assert (box.stop - box.start) * bits <= max(max_nbytes * 8, bits)
            assert max(later - earlier - 1 for earlier, later in pairwise(sorted(wanted))) * bits <= max(
                max_gap_nbytes * 8, bits
            )
    assert (times_filled == 1).all()


class Counting(MemorySource):
    """Counts what is read of it."""

    def __init__(self, data: Any) -> None:
        super().__init__(data)
        self.n_reads = self.n_read = 0

    def read_into(self, parts: Any) -> None:
        parts = list(parts)
        self.n_reads += len(parts)
        self.n_read += sum(len(into) for _, into in parts)
        super().read_into(parts)


def cost(shape: tuple[int, ...], strides: tuple[int, ...], index: Any) -> tuple[int, int]:
    """Return the reads, and their bytes, that a part of a view of a storage of 2,000 by 1,000 F32 takes."""
    storage = np.arange(2_000_000, dtype=np.float32)
    source = Counting(storage)
    entry = TensorEntry("F32", shape, (0, 4 * prod(shape)))
    lazy = LazyTensor("w", entry, StridedReader(TensorReader(source, 0, "numpy"), Layout(0, strides)))
    expected = np.lib.stride_tricks.as_strided(storage, shape, [4 * stride for stride in strides])
    assert same_bits(lazy[index], np.ascontiguousarray(expected[index]))
    return source.n_reads, source.n_read


def test_only_what_is_needed_is_read_in_few_reads() -> None:
    transposed = (1_000, 2_000), (1, 1_000)

    assert cost((2_000, 500), (1_000, 1), 7) == (1, 2_000)
    assert cost((2_000, 500), (1_000, 2), 7) == (1, 4 * 999)
    assert cost(*transposed, (slice(None), 5)) == (1, 4_000)
    assert cost(*transposed, (slice(None), [5, 1_900])) == (2, 8_000)
    assert cost(*transposed, (slice(2, 4), slice(5, 8))) == (1, 4 * 2_002)
    assert cost(*transposed, (slice(2, 4), slice(None, None, 1_000))) == (2, 16)
    assert cost((9, 1_000), (0, 1), slice(2, 8)) == (1, 4_000)
    assert cost((1_990, 11), (1, 1), slice(5, 10)) == (1, 4 * 15)
    n_reads, n_read = cost(*transposed, 5)  # a column of the storage, the rows of which are close together
    assert n_reads == 1
    assert n_read < 8_000_000
    n_reads, n_read = cost((4, 20), (25_000, 100_000), 3)
    assert (n_reads, n_read) == (20, 80)


def test_a_part_of_a_mapped_view_touches_no_more_pages_than_it_needs(tmp_path: Path) -> None:
    path = tmp_path / "storage"
    with path.open("wb") as file:
        file.truncate(2**28)
    source = LocalFile(str(path), backend="mmap")
    entry = TensorEntry("F32", (2**10, 2**15), (0, 2**27))
    lazy = LazyTensor("w", entry, StridedReader(TensorReader(source, 0, "numpy"), Layout(0, (2**16, 2))))

    before = resident_file_pages()
    parts = [lazy[7], lazy[[3, 900]], lazy[5:7, [1, 2]], lazy[[1, 2], [3, 4]], lazy[:2, 0]]

    assert [part.shape for part in parts] == [(2**15,), (2, 2**15), (2, 2), (2,), (2,)]
    assert resident_file_pages() - before < 1_000  # of 65,536


def resident_file_pages() -> int:
    return int(Path("/proc/self/statm").read_text(encoding="utf-8").split()[2])


def expanded(source: ByteSource, n_rows: int, n_columns: int) -> LazyTensor:
    entry = TensorEntry("F32", (n_rows, n_columns), (0, 4 * n_rows * n_columns))
    return LazyTensor("w", entry, StridedReader(TensorReader(source, 0, "numpy"), Layout(0, (0, 1))))


@EACH_SOURCE
def test_an_expanded_view_of_terabytes_is_sliced_and_not_loaded(way: str, tmp_path: Path) -> None:
    stored = np.arange(10, dtype=np.float32)
    with source_of(stored.tobytes(), way) as source:
        lazy = expanded(source, 10**12, 10)

        assert lazy.nbytes == 4 * 10**13
        assert lazy[10**11 : 10**11 + 3, 1].tolist() == [1, 1, 1]
        assert lazy[[5, 10**12 - 1], [2, 3]].tolist() == [2, 3]
        assert lazy[-1].tolist() == lazy.cast("f16")[-1].tolist() == stored.tolist()
        for read in (
            lazy.load,
            lambda: lazy[...],
            lambda: np.asarray(lazy),
            lazy.cast("f16").load,
            lazy.tensor_to_write,
            lambda: lazy.reader.read_run("w", lazy.entry, 0, 10),
            lambda: tensorkeep.save({"w": lazy.cast("f16")}, tmp_path / "saved"),
        ):
            with pytest.raises(LimitError, match="tensor `w` is an expanded view") as caught:
                read()
            assert caught.value.tensor == "w"
            assert caught.value.hint == "Read a slice of it"
        assert not (tmp_path / "saved").exists()
        with pytest.raises(DtypeError, match="expanded view"):
            tensorkeep.statistics(lazy)


def test_the_limit_is_for_what_is_both_large_and_more_than_the_file_has() -> None:
    row = np.arange(4, dtype=np.float32)
    assert same_bits(expanded(MemorySource(row), 3, 4).load(), np.stack([row] * 3))

    n_rows = MAX_EXPANDED_NBYTES // 16
    assert expanded(MemorySource(row), n_rows, 4).tensor_to_write().nbytes == MAX_EXPANDED_NBYTES
    with pytest.raises(LimitError):
        expanded(MemorySource(row), n_rows + 1, 4).tensor_to_write()


def test_a_large_view_with_gaps_is_no_expanded_one(tmp_path: Path) -> None:
    path = tmp_path / "storage"
    with path.open("wb") as file:
        file.truncate(3 * 2**30)
    entry = TensorEntry("U8", (2**30 + 1,), (0, 2**30 + 1))
    reader = StridedReader(TensorReader(LocalFile(str(path)), 0, "numpy"), Layout(0, (2,)))

    assert LazyTensor("w", entry, reader).tensor_to_write().nbytes == 2**30 + 1


def test_windows_that_overlap_cannot_fill_the_memory() -> None:
    storage = np.zeros(10_000, np.uint8)
    entry = TensorEntry("U8", (2_500,) * 4, (0, 2_500**4))
    lazy = LazyTensor("w", entry, StridedReader(TensorReader(MemorySource(storage), 0, "numpy"), Layout(0, (1,) * 4)))

    assert lazy[0, [0, 2_499], [0, 2_499], [0, 2_499]].tolist() == [0, 0]
    assert lazy[np.ix_([0, 2_499], [0, 2_499], [0, 2_499], [0, 2_499])].shape == (2, 2, 2, 2)
    with pytest.raises(LimitError):
        lazy.load()


@pytest.mark.parametrize("name", ["C32", "C128"])
def test_a_dtype_that_the_format_lacks_is_read_and_never_written(name: str, tmp_path: Path) -> None:
    view = View(name, 2, (3, 2), (1, 4))
    lazy = view.lazy(MemorySource(view.stored), "torch")

    assert lazy.load().dtype == lazy[0].dtype == getattr(torch, ALL_BY_NAME[name].torch or "")
    assert not lazy.is_floating_point
    with pytest.raises(DtypeError, match=r"tensor `w` .* the format cannot hold.*torch\.view_as_real"):
        tensorkeep.save({"w": lazy}, tmp_path / "saved")
    with pytest.raises(DtypeError, match="`w` cannot be cast"):
        lazy.cast("f32")
    assert list(tmp_path.iterdir()) == []


def test_numpy_has_complex128_and_no_complex32() -> None:
    double = View("C128", 2, (3, 2), (1, 4), is_big_endian=True)
    half = View("C32", 2, (3, 2), (1, 4))

    assert same_bits(double.lazy(MemorySource(double.stored))[1:], double.array[1:])
    with pytest.raises(DtypeError, match=r'NumPy has no dtype for C32.*framework="torch"'):
        half.lazy(MemorySource(half.stored))[0]


@pytest.mark.parametrize("name", ["C32", "C128"])
@pytest.mark.parametrize("framework", ["numpy", "torch"])
def test_a_safetensors_file_has_no_such_dtype(name: str, framework: str) -> None:
    text = f'{{"w":{{"dtype":"{name}","shape":[1000000],"data_offsets":[0,16]}}}}'
    data = len(text).to_bytes(8, "little") + text.encode() + bytes(16)
    with tensorkeep.open(data, framework=framework) as file:
        for read in (file.load, file["w"].load, lambda: file["w"][0], lambda: np.asarray(file["w"])):
            with pytest.raises(DtypeError, match="`w` has a dtype that this version does not know"):
                read()
        assert isinstance(file["w"].tensor_to_write(), StoredTensor)


def test_what_cannot_be_a_view_is_refused() -> None:
    view = View("BOOL", 0, (4,), (2,))
    with pytest.raises(DtypeError, match="tensor `w` is negated"):
        view.lazy(MemorySource(view.stored), is_neg=True).load()
    reader = StridedReader(TensorReader(MemorySource(bytes(8)), 0, "numpy"), Layout(0, (2,)))
    with pytest.raises(UnsupportedError, match="tensor `w` is a strided view of packed elements"):
        LazyTensor("w", TensorEntry("F4", (4,), (0, 2)), reader).load()
    with pytest.raises(DtypeError, match="`w` has a dtype that this version does not know"):
        LazyTensor("w", TensorEntry("F128", (4,), (0, 64)), reader).load()


@given(view=views([*NAMES, "C128"]), is_conj=st.booleans(), is_neg=st.booleans())
@settings(max_examples=rounds(60, 2_000))
def test_a_plain_layout_is_that_of_a_safetensors_file(view: View, is_conj: bool, is_neg: bool) -> None:
    row = ALL_BY_NAME[view.dtype]
    layout = Layout(view.padding, view.strides, view.is_big_endian, is_conj=is_conj, is_neg=is_neg)
    in_order = view.array.flags.c_contiguous
    is_changed = is_neg or (is_conj and row.is_complex) or (view.is_big_endian and row.itemsize > 1)

    assert layout.is_plain(row, view.shape) == (in_order and not is_changed and row.name in BY_NAME)


Spans = list[tuple[int, int]]
SPANS: st.SearchStrategy[Spans] = st.lists(
    st.tuples(st.integers(0, 12), st.integers(0, 12)).map(lambda ends: (min(ends), max(ends))), max_size=9
)


@pytest.mark.parametrize("way", ["mmap", "pread"])
@pytest.mark.parametrize("framework", ["numpy", "torch"])
@pytest.mark.parametrize("unit", [8, 2**18])
@given(spans=SPANS)
@example(spans=[(0, 12)] * 9)
@example(spans=[(0, 12), (5, 5), (3, 4), (12, 12), (11, 12)])
@settings(max_examples=rounds(15, 400))
def test_tensors_that_overlap_are_each_their_own(way: str, framework: str, unit: int, spans: Spans) -> None:
    content = np.random.default_rng(0).integers(0, 2**32, 12 * unit // 4, np.uint32)
    entries = {
        f"{place}": TensorEntry("U32", ((stop - start) * unit // 4,), (start * unit, stop * unit))
        for place, (start, stop) in enumerate(sorted(spans))
    }
    wanted = {
        name: content[entry.data_offsets[0] // 4 : entry.data_offsets[1] // 4] for name, entry in entries.items()
    }
    with source_of(b"padding!" + content.tobytes(), way) as source:
        reader = TensorReader(source, 8, framework)
        lazies = {name: LazyTensor(name, entry, reader) for name, entry in entries.items()}
        halves = tensorkeep.tensors.load_together({
            name: LazyTensor(name, TensorEntry("F16", (2 * entry.n_elements,), entry.data_offsets), reader).cast(
                "f32"
            )
            for name, entry in entries.items()
        })
        for loaded in (reader.load(entries), tensorkeep.tensors.load_together(dict(reversed(lazies.items())))):
            assert set(loaded) == set(entries)
            for name, tensor in loaded.items():
                assert same_bits(np.asarray(tensor), wanted[name])
                tensor[:1] = 7
                tensor[-1:] = 9
                assert same_bits(np.asarray(lazies[name][...]), wanted[name])
    for name, half in halves.items():
        with np.errstate(invalid="ignore"):
            expected = wanted[name].view(np.float16).astype(np.float32)
        assert np.array_equal(np.asarray(half), expected, equal_nan=True)


@EACH_SOURCE
def test_a_misaligned_tensor_is_read_part_by_part_too(way: str, tmp_path: Path) -> None:
    known = Known.random("F64", (300, 40), 3)
    with source_of(b"odd" + known.data, way) as source:
        lazy = LazyTensor("w", TensorEntry("F64", (300, 40), (3, 3 + 96_000)), TensorReader(source, 0, "numpy"))
        for index in (7, slice(3, 200, 9), ([1, 299, 5], slice(None, None, -3)), ([5, 6], [7, 8])):
            assert same_bits(lazy[index], np.ascontiguousarray(known.array[index]))
            assert lazy[index].flags.aligned

"""`file[name][index]` is what NumPy gives for the same data and index, bit for bit, however the file is read."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from hypothesis import example, given, settings

import tensorkeep
from tensorkeep.dtypes import BY_NAME, DTYPES
from tensorkeep.errors import DtypeError, SelectionError
from tensorkeep.tensors.indexing._selection import parse_index
from tests.support.soak import rounds
from tests.support.tensors.index_strategies import SHAPES, indices
from tests.support.tensors.plain_files import WAYS, Known, file_of, opened, same_bits, whole_bytes

NAMES = [dtype.name for dtype in DTYPES]

FIXED_INDICES: list[Any] = [
    *(..., (), 0, -1, 3, slice(None), slice(None, None, -1), slice(1, None, 2), slice(4, 0, -3), slice(2, 2)),
    *(
        (0, 1),
        (slice(None), 2),
        (..., 2),
        (..., None, slice(1, 3)),
        (None, 0),
        (slice(None, None, 2), slice(None, None, -2)),
    ),
    *(
        [0],
        [2, 0, 2, -1],
        ([0, 1], [1, 0]),
        (slice(None), [3, 3, 0]),
        ([[0], [1]], [[2, 3]]),
        ([0, 1], slice(1, 3), [0, 0]),
    ),
    *(
        [],
        np.array([True, False, True, False]),
        (slice(None), np.eye(4, 3, dtype=bool)),
        (0, slice(None), [1]),
        ([1], 0),
    ),
    *(np.array(2), (slice(None), np.int64(-1)), (..., -1), (3, 3, 2), (slice(1, 3), slice(1, 3), slice(1, 3))),
]


def numpy_says(array: Any, index: Any) -> Any:
    """Return what NumPy makes of an index, or None where it refuses it."""
    try:
        return np.asarray(array[index])
    except (IndexError, ValueError, TypeError):  # ValueError: a step of zero, or shapes that do not broadcast
        return None


def is_single_boolean(index: Any) -> bool:
    """Whether the index holds True, which NumPy takes for a new dimension and tensorkeep for a mistake."""
    return any(item is True for item in (index if isinstance(index, tuple) else (index,)))


def refused_as_out_of_bounds(lazy: tensorkeep.LazyTensor, index: Any) -> bool:
    """Whether positions are refused that do not exist: NumPy lets them pass where nothing is taken in the end."""
    try:
        lazy[index]
    except SelectionError as error:
        return "out of bounds" in str(error)
    return False


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("dtype", NAMES)
def test_each_dtype_by_each_way(dtype: str, way: str) -> None:
    known = Known.random(dtype, (4, 4, 3), seed=3)
    with opened(file_of({"before": Known.random("U8", (3,)), "w": known}), way) as file:
        for index in FIXED_INDICES:
            assert same_bits(file["w"][index], np.asarray(known.array[index])), index


@pytest.mark.parametrize("way", WAYS)
def test_a_tensor_without_dimensions(way: str) -> None:
    known = {dtype.name: Known.random(dtype.name, (), dtype.rank) for dtype in DTYPES if not dtype.is_packed}
    with opened(file_of(known), way) as file:
        for name, tensor in known.items():
            for index in ((), ..., None, (None, ..., None)):
                assert same_bits(file[name][index], np.asarray(tensor.array[index])), (name, index)


@pytest.mark.parametrize("way", WAYS)
@given(data=st.data())
@settings(max_examples=rounds(100, 4_000))
def test_any_index_means_what_it_means_in_numpy(way: str, data: st.DataObject) -> None:
    dtype = data.draw(st.sampled_from(NAMES))
    shape = whole_bytes(dtype, data.draw(SHAPES))
    index = data.draw(indices(shape))
    known = Known.random(dtype, shape)
    expected = None if is_single_boolean(index) else numpy_says(known.array, index)

    with opened(file_of({"w": known}, padding=data.draw(st.integers(0, 7))), way) as file:
        if expected is None:
            with pytest.raises(SelectionError) as caught:
                file["w"][index]
            assert isinstance(caught.value, IndexError)
        elif expected.size or not refused_as_out_of_bounds(file["w"], index):
            assert same_bits(file["w"][index], expected)


@given(data=st.data())
@settings(max_examples=rounds(100, 4_000))
def test_torch_tensors_have_the_same_bits(data: st.DataObject) -> None:
    dtype = data.draw(st.sampled_from([name for name in NAMES if BY_NAME[name].torch]))
    shape = whole_bytes(dtype, data.draw(SHAPES))
    index = data.draw(indices(shape))
    known = Known.random(dtype, shape)
    expected = None if is_single_boolean(index) else numpy_says(known.array, index)
    in_pairs = dtype != "F4" or (expected is not None and expected.ndim and expected.shape[-1] % 2 == 0)

    with opened(file_of({"w": known}), data.draw(st.sampled_from(list(WAYS))), framework="torch") as file:
        if expected is None or not in_pairs:
            with pytest.raises((SelectionError, DtypeError)):
                file["w"][index]
            return
        if not expected.size and refused_as_out_of_bounds(file["w"], index):
            return
        part = file["w"][index]
    shape_of_part = (*expected.shape[:-1], expected.shape[-1] // 2) if dtype == "F4" else expected.shape
    assert str(part.dtype) == f"torch.{BY_NAME[dtype].torch}"
    assert tuple(part.shape) == shape_of_part
    elements = part.flatten().clone(memory_format=torch.contiguous_format)  # of one element strides may be anything
    assert elements.view(torch.uint8).numpy().tobytes() == Known(BY_NAME[dtype], expected).data


@pytest.mark.parametrize("dtype", ["F6_E2M3", "F6_E3M2"])
def test_what_torch_lacks_is_refused(dtype: str) -> None:
    file_bytes = file_of({"w": Known.random(dtype, (4, 4))})
    with opened(file_bytes, "mmap", framework="torch") as file, pytest.raises(DtypeError, match="torch has no dtype"):
        file["w"][0]


@given(shape=SHAPES, data=st.data())
@example(shape=(4,), data=None)
@settings(max_examples=rounds(125, 5_000))
def test_axes_are_ascending_without_repetition_and_inside(shape: tuple[int, ...], data: Any) -> None:
    index = slice(0, 3, -1) if data is None else data.draw(indices(shape))
    try:
        selection = parse_index(index, shape)
    except SelectionError:
        return

    assert len(selection.axes) == len(shape)
    for axis, extent in zip(selection.axes, shape, strict=True):
        positions = list(axis)
        assert positions == sorted(set(positions))
        assert all(0 <= position < extent for position in positions)


@pytest.mark.parametrize("way", WAYS)
def test_an_owned_part_is_writable_and_touches_nothing_else(way: str) -> None:
    known = Known.random("I32", (5, 6))
    with opened(file_of({"w": known}), way) as file:
        for index in (..., 0, slice(None), [1, 2], (slice(None, None, -1), 2), (), None):
            part = file["w"][index]
            before = part.copy()
            part[...] = 7

            assert part.flags.writeable
            assert part.base is None or part.base.base is None
            assert same_bits(file["w"][index], before)
        assert same_bits(file.load()["w"], known.array)


@pytest.mark.parametrize("way", WAYS)
def test_parts_without_elements_have_the_strides_of_a_fresh_tensor(way: str) -> None:
    """torch views a tensor as another dtype only where its last stride is 1, elements or none."""
    file = file_of({"w": Known.random("I16", (0, 3)), "v": Known.random("I16", (4,))})
    with opened(file, way, framework="torch") as f:
        for part in (f["w"][...], f["w"][:, 0], f["v"][:0], f["v"][[]], f["w"].load(), f["w"][None]):
            assert part.stride() == torch.empty(part.shape).stride()


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("framework", ["numpy", "torch"])
def test_parts_are_contiguous(way: str, framework: str) -> None:
    with opened(file_of({"w": Known.random("F32", (5, 6, 7))}), way, framework=framework) as file:
        for index in (
            ...,
            (slice(None), 2),
            (slice(None, None, -1), [0, 2]),
            ([0, 1], slice(None), [1, 1]),
            (..., 3),
        ):
            part = file["w"][index]
            assert part.is_contiguous() if framework == "torch" else part.flags.c_contiguous


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("index", "words"),
    [
        (7, "index 7 is out of bounds for axis 0 with size 4"),
        (-5, "index -5 is out of bounds for axis 0 with size 4"),
        ((0, 0, 0), "too many indices"),
        ((..., ...), "single ellipsis"),
        ([0, 9], "index 9 is out of bounds for axis 0 with size 4"),
        (np.zeros(3, bool), "boolean index did not match"),
        (1.0, "only integers"),
        ("w", "only integers"),
        ([[0.5]], "only integers"),
        (slice(None, None, 0), "step cannot be zero"),
        (slice("a"), "slice indices must be integers"),
        (([0, 1], [0, 1, 2]), "broadcast"),
        (True, "single boolean"),
        (np.bool_(True), "."),
        (2**70, "out of bounds"),
        (np.array([], float), "only integers"),
    ],
)
def test_a_wrong_index_is_refused_in_words(way: str, index: Any, words: str) -> None:
    with opened(file_of({"w": Known.random("F32", (4, 3))}), way) as file, pytest.raises(SelectionError, match=words):
        file["w"][index]


def test_iteration_and_length_follow_the_first_dimension() -> None:
    known = Known.random("I16", (3, 2))
    with opened(file_of({"w": known, "s": Known.random("I16", ())}), "pread") as file:
        assert len(file["w"]) == 3
        assert [row.tolist() for row in file["w"]] == known.array.tolist()
        with pytest.raises(TypeError, match="0-d"):
            len(file["s"])
        with pytest.raises(TypeError, match="0-d"):
            list(file["s"])


def test_numpy_takes_a_lazy_tensor_for_an_array() -> None:
    known = Known.random("I16", (3, 2))
    with opened(file_of({"w": known}), "mmap", framework="torch") as file:
        assert same_bits(np.asarray(file["w"]), known.array)
        assert np.asarray(file["w"], dtype=np.float64).dtype == np.float64
        assert np.array(file["w"]).flags.writeable


def test_only_the_bytes_that_are_needed_are_read() -> None:
    known = Known.random("F32", (1_000, 1_000))
    file = file_of({"w": known})

    class Counting(tensorkeep.transport.MemorySource):
        n_read = 0

        def read_into(self, parts: Any) -> None:
            for offset, into in parts:
                Counting.n_read += len(into)
                super().read_into([(offset, into)])

    from tensorkeep.formats.safetensors import read_header
    from tensorkeep.tensors.readers._contiguous import TensorReader

    source = Counting(file)
    header = read_header(source)
    reader = TensorReader(source, header.data_start, "numpy")

    def cost(index: Any) -> int:
        Counting.n_read = 0
        part = reader.read("w", header.entries["w"], parse_index(index, (1_000, 1_000)))
        assert same_bits(part, np.ascontiguousarray(known.array[index]))
        return Counting.n_read

    assert cost(5) == 4_000
    assert cost(slice(10, 20)) == 40_000
    assert cost((7, slice(3, 5))) == 8
    assert cost([1, 500, 999]) == 12_000
    assert cost((slice(None, None, 100), slice(0, 10))) == 400
    assert cost(slice(3, 3)) == 0
    assert cost((slice(None), 0)) <= known.array.nbytes


@pytest.mark.parametrize("index", [9, (0, 0, 0), [9], 1.5, np.ones(3, bool)])
def test_an_index_that_does_not_fit_names_the_tensor(index: Any) -> None:
    file = tensorkeep.open(file_of({"norm.weight": Known.random("F32", (4, 3))}))
    with pytest.raises(SelectionError, match=r"^tensor `norm\.weight`: ") as caught:
        file["norm.weight"][index]
    assert caught.value.tensor == "norm.weight"

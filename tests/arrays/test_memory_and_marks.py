"""Where tensors lie in memory, and what is said of them beside their elements."""

from __future__ import annotations

import time
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch

from tensorkeep.arrays import Extent, codec_for, plain_library, tensor_to_write
from tensorkeep.arrays.sharing import shared_memory_for
from tensorkeep.dtypes import BY_NAME
from tensorkeep.errors import FormatError
from tests.support.arrays.apart import through_bytes

BASE = np.arange(60, dtype="f4").reshape(3, 4, 5)
TORCH = torch.arange(60.0).reshape(3, 4, 5)


def extent_of(tensor: Any) -> Extent:
    extent = tensor_to_write(tensor, "w").extent()
    assert extent is not None
    return extent


def memory_of(tensor: Any, start: int, stop: int) -> bytes:
    memory = tensor_to_write(tensor, "w").memory
    assert memory is not None
    return b"".join(bytes(buffer) for buffer in memory(start, stop))


@pytest.mark.parametrize(
    ("array", "strides"),
    [
        (BASE, (20, 5, 1)),
        (BASE.T, (1, 5, 20)),
        (BASE[::2, ::-1, 1:3], (40, -5, 1)),
        (BASE[::-1], (-20, 5, 1)),
        (np.broadcast_to(BASE[0, 0], (2, 5)), (0, 1)),
        (np.array(3.0), ()),
        (np.zeros(4, [("a", "i1"), ("b", "<f4")])["b"], ()),  # five bytes apart
        (BASE.astype(">f4"), ()),
        (np.zeros((2, 4), ml_dtypes.float4_e2m1fn), ()),  # memory is not what the file holds
        (np.zeros((2, 4), ml_dtypes.bfloat16), (4, 1)),
        (TORCH, (20, 5, 1)),
        (TORCH.permute(2, 1, 0), (1, 5, 20)),
        (TORCH[0, 0].expand(2, 5), (0, 1)),
        (torch.tensor(3.0), ()),
        (torch.zeros(2, 4, dtype=torch.uint8).view(torch.float4_e2m1fn_x2), (8, 1)),
        (torch.zeros(4, 6, dtype=torch.uint8)[:, 2:4].view(torch.float4_e2m1fn_x2), (12, 1)),
        (torch.zeros(4, 2, dtype=torch.uint8).view(torch.float4_e2m1fn_x2).T, ()),
    ],
    ids=lambda value: str(value) if type(value) is tuple else type(value).__name__,
)
def test_strides_are_counted_in_elements_of_the_file(array: Any, strides: tuple[int, ...]) -> None:
    assert extent_of(array).strides == strides


@pytest.mark.parametrize("array", [BASE[::2, ::-1, 1:3], BASE[::-1], BASE.T, TORCH[1:, ::2], TORCH.permute(2, 0, 1)])
def test_memory_and_strides_tell_every_element(array: Any) -> None:
    extent, shape = extent_of(array), tuple(array.shape)
    memory = np.frombuffer(memory_of(array, extent.start, extent.stop), np.uint8).copy()
    first = -sum(min(0, (n - 1) * step) for n, step in zip(shape, extent.strides, strict=True))

    shared = shared_memory_for("numpy")
    again = shared.view_of(shared.storage(memory), BY_NAME["F32"], first, shape, extent.strides)

    assert np.array_equal(again, np.asarray(array))


def test_memory_reaches_over_tensors_that_overlap_and_is_no_copy() -> None:
    base = np.arange(100, dtype=np.uint8)
    left, right = torch.from_numpy(base[10:50]), torch.from_numpy(base[40:90])
    assert left.untyped_storage().nbytes() < 80
    start, stop = extent_of(left).start, extent_of(right).stop

    (buffer,) = list(tensor_to_write(left, "w").memory(start, stop))  # type: ignore[misc]

    assert bytes(buffer) == bytes(range(10, 90))
    base[10] = 77
    assert buffer[0] == 77


def test_memory_stays_as_long_as_it_is_looked_at() -> None:
    tensor = torch.full((1000,), 7, dtype=torch.uint8)
    extent = extent_of(tensor)
    (buffer,) = list(tensor_to_write(tensor, "w").memory(extent.start, extent.stop))  # type: ignore[misc]

    del tensor
    others = [torch.zeros(1000, dtype=torch.uint8) for _ in range(100)]

    assert bytes(buffer) == b"\7" * 1000
    assert len(others) == 100


def test_conjugates_and_negatives_are_told() -> None:
    tensor = torch.tensor([1 + 2j, 3 - 4j], dtype=torch.complex64)

    assert extent_of(tensor.conj()).is_conj
    assert not extent_of(tensor).is_conj
    assert extent_of(torch._neg_view(tensor)).is_neg
    assert extent_of(tensor.conj().imag).is_neg
    assert memory_of(tensor.conj(), extent_of(tensor).start, extent_of(tensor).stop) == tensor.numpy().tobytes()


IMAGES = torch.arange(2 * 3 * 4 * 5.0).reshape(2, 3, 4, 5)
PLAIN: list[tuple[Any, dict[str, Any]]] = [
    (IMAGES, {}),
    (IMAGES.contiguous(memory_format=torch.channels_last), {"order": [0, 2, 3, 1]}),
    (IMAGES[:1].contiguous(memory_format=torch.channels_last), {"order": [0, 2, 3, 1]}),
    (IMAGES[None].contiguous(memory_format=torch.channels_last_3d), {"order": [0, 2, 3, 4, 1]}),
    (IMAGES.to(torch.float8_e4m3fn).contiguous(memory_format=torch.channels_last), {"order": [0, 2, 3, 1]}),
    (IMAGES.bool().permute(3, 2, 1, 0), {"order": [3, 2, 1, 0]}),
    (IMAGES[:, :, ::2], {}),
    (IMAGES[0, 0, 0].expand(3, 5), {}),
    (IMAGES.permute(1, 0, 2, 3)[:2], {}),
    (torch.zeros(0, 3).T, {}),
    (torch.tensor(1), {}),
    (torch.ones(2).requires_grad_(), {"grad": True}),
    (torch.ones(2, requires_grad=True) * 2, {"grad": True}),
    (torch.nn.Parameter(IMAGES.clone()), {"class": "Parameter", "grad": True}),
    (torch.nn.Parameter(torch.ones(2), requires_grad=False), {"class": "Parameter"}),
    (torch.nn.Parameter(torch.ones(2, dtype=torch.int8), requires_grad=False), {"class": "Parameter"}),
    (torch.nn.Parameter(IMAGES.permute(3, 2, 1, 0)), {"class": "Parameter", "grad": True, "order": [3, 2, 1, 0]}),
    (torch.nn.Buffer(torch.ones(2)), {"class": "Buffer"}),
    (BASE, {}),
    (BASE.T, {"order": [2, 1, 0]}),
    (np.asfortranarray(BASE[0]), {"order": [1, 0]}),
    (BASE.transpose(1, 0, 2).astype(ml_dtypes.bfloat16), {"order": [1, 0, 2]}),
    (BASE[::-1], {}),
    (BASE[:, ::2], {}),
    (np.zeros((0, 3)).T, {}),
    (np.array(1.0), {}),
]


@pytest.mark.parametrize(("tensor", "marks"), PLAIN)
def test_marks_say_what_is_needed_and_bring_it_back(tensor: Any, marks: dict[str, Any]) -> None:
    library = "torch" if isinstance(tensor, torch.Tensor) else "numpy"
    assert plain_library(tensor) == library
    assert codec_for(library).attributes_of(tensor) == marks

    loaded = through_bytes(tensor)

    assert type(loaded) is type(tensor)
    assert codec_for(library).attributes_of(loaded) == marks
    if isinstance(tensor, np.ndarray):
        assert np.array_equal(loaded, tensor)
        assert loaded.strides == tensor.strides or "order" not in marks
    else:
        assert torch.equal(loaded.float(), tensor.float())
        assert loaded.stride() == tensor.stride() or "order" not in marks
        assert loaded.requires_grad == tensor.requires_grad
        assert isinstance(loaded, torch.nn.Buffer) == isinstance(tensor, torch.nn.Buffer)


def test_what_lies_in_order_already_is_not_copied() -> None:
    last = IMAGES.contiguous(memory_format=torch.channels_last)
    marks = {"order": [0, 2, 3, 1], "class": "Parameter", "grad": True, "name": "another member"}

    assert codec_for("torch").with_attributes(last, marks).data_ptr() == last.data_ptr()
    assert np.shares_memory(codec_for("numpy").with_attributes(BASE.T, {"order": [2, 1, 0]}), BASE)


def test_numpy_passes_over_what_it_has_not() -> None:
    assert codec_for("numpy").with_attributes(BASE, {"class": "Parameter", "grad": True}) is BASE


WRONG: list[dict[str, Any]] = [
    {"class": "Module"},
    {"class": 5},
    {"class": ["Parameter"]},
    {"grad": 1},
    {"grad": "true"},
    {"order": [0, 1]},
    {"order": [0, 1, 1]},
    {"order": [0, 1, 3]},
    {"order": [0, 1, -1]},
    {"order": [0, 1, 2.0]},
    {"order": [False, True, 2]},
    {"order": "012"},
    {"order": {"0": 0}},
]


@pytest.mark.parametrize("library", ["numpy", "torch"])
@pytest.mark.parametrize("marks", WRONG)
def test_wrong_marks_are_refused(library: str, marks: dict[str, Any]) -> None:
    with pytest.raises(FormatError):
        codec_for(library).with_attributes(BASE if library == "numpy" else TORCH, marks)


@pytest.mark.parametrize("marks", [{"grad": True}, {"grad": True, "class": "Parameter"}])
def test_integers_have_no_gradients(marks: dict[str, Any]) -> None:
    with pytest.raises(FormatError, match="gradients"):
        codec_for("torch").with_attributes(torch.arange(3), marks)


@pytest.mark.parametrize(
    "value",
    [
        1, 1.5, None, "text", [1], {"a": 1}, np.float64(1), np.dtype("f4"), np.array(["a"]), np.array([None]),
        np.zeros(2, ">f4"), np.zeros(2, "c16"), np.zeros(2, "M8[s]"), np.zeros(2, ml_dtypes.int4),
        np.ma.masked_array([1.0]), torch.zeros(2, device="meta"), torch.zeros(2, dtype=torch.complex128),
        torch.eye(2).to_sparse(), torch.float32, torch.nn.UninitializedParameter(), torch.nn.Linear(1, 1),
        torch.Size([1]),
    ],
    ids=lambda value: type(value).__name__,
)  # fmt: skip
def test_what_a_file_cannot_hold_as_it_is(value: Any) -> None:
    assert plain_library(value) is None


def test_looking_at_a_hundred_thousand_tensors_is_fast() -> None:
    tensors = [torch.nn.Parameter(torch.zeros(1)) for _ in range(10_000)]

    times = []
    for _ in range(5):
        begin = time.perf_counter()
        for tensor in tensors:
            plain_library(tensor)
        times.append(time.perf_counter() - begin)

    assert min(times) < 0.02  # a tenth of the tensors, four times the aim: other work runs beside this

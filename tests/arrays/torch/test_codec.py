"""What is data of torch, taken apart and put together: exact for every kind; hostile parts give our errors."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch
from torch.testing._internal.two_tensor import TwoTensor

from tensorkeep.arrays import EncodedObject, decode_object, encode_object, known_class, plain_library
from tensorkeep.errors import FormatError, UnsupportedError
from tests.support.arrays.apart import put, taken

pytestmark = [
    pytest.mark.filterwarnings("ignore:Sparse:UserWarning"),
    pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors:UserWarning"),
]

RANDOM = torch.Generator().manual_seed(1)


def numbers(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(shape, generator=RANDOM, dtype=dtype)


LABELS = [
    torch.float32, torch.bfloat16, torch.quint8, torch.uint4, torch.complex32, torch.strided, torch.sparse_csr,
    torch.jagged, torch.channels_last, torch.contiguous_format, torch.per_tensor_affine, torch.device("cpu"),
    torch.device("cuda", 3), torch.device("meta"), torch.Size([]), torch.Size([2, 0, 3]),
]  # fmt: skip


@pytest.mark.parametrize("label", LABELS, ids=repr)
def test_labels_come_back(label: Any) -> None:
    loaded = put(taken(label))

    assert type(loaded) is type(label)
    assert loaded == label


def check_same(loaded: torch.Tensor, tensor: torch.Tensor) -> None:
    assert type(loaded) is type(tensor)
    assert (loaded.dtype, loaded.layout, loaded.shape) == (tensor.dtype, tensor.layout, tensor.shape)
    assert loaded.requires_grad == tensor.requires_grad
    assert loaded.is_leaf


COMPLEX = [
    numbers(2, 3, dtype=torch.complex128),
    numbers(2, 3, dtype=torch.complex128).conj(),
    torch._neg_view(numbers(2, 3, dtype=torch.complex128)),
    numbers(3, 2, dtype=torch.complex128).T,
    numbers(2, 8, dtype=torch.complex128)[:, ::2],
    torch.tensor(1 + 2j, dtype=torch.complex128),
    torch.zeros(0, 3, dtype=torch.complex128),
    numbers(2, 3, dtype=torch.complex64).to(torch.complex32),
    torch.nn.Parameter(numbers(3, dtype=torch.complex128)),
    torch.nn.Parameter(numbers(3, dtype=torch.complex128), requires_grad=False),
    numbers(3, dtype=torch.complex128).requires_grad_(),
]


@pytest.mark.parametrize("tensor", COMPLEX, ids=lambda tensor: f"{tensor.dtype}{tuple(tensor.shape)}")
def test_complex_tensors_come_back(tensor: torch.Tensor) -> None:
    loaded = put(taken(tensor))

    check_same(loaded, tensor)
    assert torch.equal(*(torch.view_as_real(wide.detach().to(torch.complex64)) for wide in (loaded, tensor)))
    assert loaded.stride() == tensor.stride() or not tensor.is_contiguous()


def coo(*, is_coalesced: bool) -> torch.Tensor:
    indices = torch.tensor([[0, 1, 1], [2, 0, 2]]) if is_coalesced else torch.tensor([[1, 1, 0], [2, 2, 0]])
    return torch.sparse_coo_tensor(
        indices, numbers(3, 2), (2, 3, 2), is_coalesced=is_coalesced, check_invariants=True
    )


DENSE = numbers(4, 6) * (numbers(4, 6) > 0.5)
SPARSE = [
    coo(is_coalesced=True),
    coo(is_coalesced=False),
    coo(is_coalesced=True).to(torch.complex128),
    coo(is_coalesced=True).requires_grad_(),
    torch.nn.Parameter(coo(is_coalesced=True)),
    torch.sparse_coo_tensor(torch.zeros(2, 0, dtype=torch.int64), torch.zeros(0), (3, 4), check_invariants=True),
    DENSE.to_sparse_csr(),
    DENSE.to_sparse_csc(),
    DENSE.to_sparse_bsr((2, 3)),
    DENSE.to_sparse_bsc((2, 3)),
    torch.stack([DENSE, DENSE]).to_sparse_csr(),
    DENSE.to(torch.complex128).to_sparse_csr(),
    torch.sparse_csr_tensor(
        torch.tensor([0, 1, 2], dtype=torch.int32), torch.tensor([1, 0], dtype=torch.int32), numbers(2), (2, 2)
    ),
]


@pytest.mark.parametrize("tensor", SPARSE, ids=lambda tensor: f"{tensor.layout}{tuple(tensor.shape)}{tensor.dtype}")
def test_sparse_tensors_come_back(tensor: torch.Tensor) -> None:
    loaded = put(taken(tensor))

    check_same(loaded, tensor)
    assert torch.equal(loaded.to_dense(), tensor.to_dense())
    if tensor.layout is torch.sparse_coo:
        assert loaded.is_coalesced() == tensor.is_coalesced()
        assert torch.equal(loaded._indices(), tensor._indices())
    elif tensor.layout is torch.sparse_csr:
        assert loaded.crow_indices().dtype == tensor.crow_indices().dtype


SCALES = torch.tensor([0.1, 0.2, 0.3], dtype=torch.float64)
ZEROS = torch.tensor([0, 1, 2])
QUANTIZED = [
    torch.quantize_per_tensor(numbers(3, 4), 0.1, 3, torch.qint8),
    torch.quantize_per_tensor(numbers(3, 4), 0.1, 128, torch.quint8).T,
    torch.quantize_per_tensor(numbers(3, 4), 0.1, 0, torch.qint32)[:, 1:3],
    torch.quantize_per_channel(numbers(3, 4), SCALES, ZEROS, 0, torch.qint8),
    torch.quantize_per_channel(numbers(3, 4), SCALES.float(), ZEROS.float() + 0.5, 0, torch.quint8),
]


@pytest.mark.parametrize("tensor", QUANTIZED, ids=lambda tensor: f"{tensor.qscheme()}{tensor.dtype}")
def test_quantized_tensors_come_back(tensor: torch.Tensor) -> None:
    loaded = put(taken(tensor))

    check_same(loaded, tensor)
    assert loaded.qscheme() == tensor.qscheme()
    assert torch.equal(loaded.int_repr(), tensor.int_repr())
    assert torch.equal(loaded.dequantize(), tensor.dequantize())


def test_what_can_share_memory_does() -> None:
    quantized, wide = QUANTIZED[0].clone(), COMPLEX[0].clone()

    for tensor, part in ((quantized, "data"), (wide, "data"), (coo(is_coalesced=True), "values")):
        composed = encode_object(tensor)
        assert composed is not None
        if tensor.layout is torch.strided:
            assert composed.parts[part].data_ptr() == tensor.data_ptr()
            assert decode_object(composed, find_class=known_class).data_ptr() == tensor.data_ptr()
        else:
            assert composed.parts[part].data_ptr() == tensor._values().data_ptr()


@pytest.mark.parametrize("layout", [torch.strided, torch.jagged])
@pytest.mark.parametrize("requires_grad", [False, True])
def test_nested_tensors_come_back(layout: torch.layout, requires_grad: bool) -> None:
    rows = [numbers(2, 3), numbers(4, 3)]
    tensor = torch.nested.nested_tensor(rows, layout=layout, requires_grad=requires_grad)

    loaded = put(taken(tensor))

    assert loaded.layout == layout
    assert loaded.requires_grad == requires_grad
    assert all(torch.equal(a, b) for a, b in zip(loaded.unbind(), rows, strict=True))


def test_nested_tensors_with_holes_come_back() -> None:
    padded = numbers(2, 5, 3)
    narrowed = torch.nested.narrow(padded, 1, torch.tensor([0, 1]), torch.tensor([2, 4]), layout=torch.jagged)

    loaded = put(taken(narrowed))

    assert all(torch.equal(a, b) for a, b in zip(loaded.unbind(), narrowed.unbind(), strict=True))


def test_generators_go_on() -> None:
    generator = torch.Generator().manual_seed(7)
    torch.randn(3, generator=generator)

    loaded = put(taken(generator))

    assert type(loaded) is torch.Generator
    assert torch.equal(torch.randn(9, generator=loaded), torch.randn(9, generator=generator))


def test_a_generator_of_a_device_that_is_not_there_stays_apart() -> None:
    if torch.cuda.device_count() > 100:  # there is none of that number, on any machine
        pytest.fail("a machine that this test did not think of")
    composed = EncodedObject(
        "torch", "generator", {"state": torch.zeros(16, dtype=torch.uint8)}, {"device": "cuda:101"}
    )

    assert decode_object(composed, find_class=known_class) is composed


def find_two(name: str) -> type | None:
    return TwoTensor if name == "torch.testing._internal.two_tensor:TwoTensor" else None


def test_wrappers_come_back_if_their_class_is_allowed() -> None:
    tensor = TwoTensor(numbers(2, 3), TwoTensor(numbers(2, 3), numbers(2, 3)))

    loaded = put(taken(tensor), find_two)

    assert type(loaded) is TwoTensor
    assert torch.equal(loaded.a, tensor.a)
    assert torch.equal(loaded.b.b, tensor.b.b)


def test_a_wrapper_of_a_class_that_nobody_allowed_stays_apart() -> None:
    composed = taken(TwoTensor(numbers(2), numbers(2)))

    assert put(composed) == decode_object(composed, find_class=known_class) == composed
    assert put(taken(TwoTensor(numbers(2), TwoTensor(numbers(2), numbers(2)))), known_class).kind == "subclass"


def test_parameters_that_wrap_are_parameters() -> None:
    parameter = torch.nn.Parameter(TwoTensor(numbers(2), numbers(2)))
    assert type(parameter) is TwoTensor

    loaded = put(taken(parameter), find_two)

    assert isinstance(loaded, torch.nn.Parameter)
    assert loaded.requires_grad
    assert not put(taken(torch.nn.Parameter(parameter.detach(), requires_grad=False)), find_two).requires_grad


@pytest.mark.parametrize(
    "value",
    [
        torch.zeros(2, device="meta"), torch.zeros(2, device="meta", dtype=torch.complex128),
        torch.nn.UninitializedParameter(), torch.zeros(4, 4).to_mkldnn(), torch.nn.Linear(2, 2), torch.relu,
        torch.zeros(2).as_subclass(type("Sub", (torch.Tensor,), {})), torch.zeros(3).untyped_storage(), torch,
        torch.quantize_per_channel(numbers(3, 4), SCALES, ZEROS.float(), 0, torch.quint4x2),
    ],
    ids=lambda value: type(value).__name__,
)  # fmt: skip
def test_what_has_no_form_as_data_is_not_taken(value: Any) -> None:
    assert encode_object(value) is None
    assert plain_library(value) is None


def test_parts_of_another_library_are_taken_over() -> None:
    sparse = EncodedObject(
        "torch",
        "sparse_coo",
        {"indices": np.array([[0, 1]]), "values": np.array([1.5, 2], ml_dtypes.bfloat16)},
        {"shape": (3,), "is_coalesced": True},
    )
    times = EncodedObject("numpy", "array", {"data": torch.tensor([1, 2])}, {"dtype": "<M8[s]"})

    assert decode_object(sparse, find_class=known_class).to_dense().tolist() == [1.5, 2, 0]
    assert decode_object(times, find_class=known_class).tolist() == np.array([1, 2], "M8[s]").tolist()


I = torch.tensor  # noqa: E741
F = torch.ones
COO = {"indices": I([[0, 1], [2, 0]]), "values": F(2)}
CSR = {"crow_indices": I([0, 1, 2]), "col_indices": I([1, 0]), "values": F(2)}
Q = {"dtype": "torch.qint8", "scale": 0.1, "zero_point": 0}
INT8 = torch.zeros(2, 3, dtype=torch.int8)
CHANNELS = {"data": INT8, "scales": F(2, dtype=torch.float64), "zero_points": I([0, 0])}
NESTED = {"buffer": F(6), "sizes": I([[2], [4]]), "strides": I([[1], [1]]), "storage_offsets": I([0, 2])}
JAGGED = {"values": F(6, 2), "offsets": I([0, 2, 6])}
TWO = {
    "class": "torch.testing._internal.two_tensor:TwoTensor",
    "context": None, "shape": (2,), "strides": (1,),
}  # fmt: skip
WRAPPED = {"a": F(2), "b": F(2)}
SHAPE = {"shape": (2, 3), "is_coalesced": True}

HOSTILE: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("dtype", {}, {}),
    ("dtype", {}, {"name": "torch.load"}),
    ("dtype", {}, {"name": "torch.strided"}),
    ("dtype", {}, {"name": ["torch.float32"]}),
    ("layout", {}, {"name": "torch.float32"}),
    ("device", {}, {"name": "abacus"}),
    ("device", {}, {"name": "cuda:999999"}),
    ("device", {}, {"name": 5}),
    ("size", {}, {"shape": "12"}),
    ("size", {}, {"shape": (1.0,)}),
    ("size", {}, {"shape": (2**70,)}),
    ("generator", {}, {"device": "cpu"}),
    ("generator", {"state": F(5056)}, {"device": "cpu"}),
    ("generator", {"state": torch.zeros(5056, dtype=torch.uint8)}, {"device": "cpu"}),
    ("generator", {"state": torch.full((5056,), 255, dtype=torch.uint8)}, {"device": "cpu"}),
    ("generator", {"state": torch.zeros(3, dtype=torch.uint8)}, {"device": "cpu"}),
    ("generator", {"state": torch.zeros(5056, dtype=torch.uint8)}, {"device": None}),
    ("generator", {"state": [1, 2]}, {"device": "cpu"}),
    ("complex", {}, {}),
    ("complex", {"data": F(2, 3, dtype=torch.float64)}, {}),
    ("complex", {"data": F(2, 2, dtype=torch.float32)}, {}),
    ("complex", {"data": torch.tensor(1.0, dtype=torch.float64)}, {}),
    ("complex", {"data": torch.ones(1, dtype=torch.float64).expand(1000, 2)}, {}),
    ("sparse_coo", COO | {"indices": I([[0, 2], [2, 0]])}, SHAPE),
    ("sparse_coo", COO | {"indices": I([[0, 1], [2, -1]])}, SHAPE),
    ("sparse_coo", COO | {"indices": I([[1, 0], [2, 0]])}, SHAPE),
    ("sparse_coo", COO | {"indices": F(2, 2)}, SHAPE),
    ("sparse_coo", COO | {"values": F(3)}, SHAPE),
    ("sparse_coo", COO, SHAPE | {"shape": (2**62, 2**62)}),
    ("sparse_coo", COO, SHAPE | {"shape": (2,)}),
    ("sparse_coo", COO, SHAPE | {"shape": (2, -3)}),
    ("sparse_coo", COO, SHAPE | {"shape": "23"}),
    ("sparse_coo", COO, {"shape": (2, 3)}),
    ("sparse_coo", COO, SHAPE | {"class": "System"}),
    ("sparse_coo", COO, SHAPE | {"class": ["Parameter"]}),
    ("sparse_coo", COO | {"values": I([1, 2])}, SHAPE | {"requires_grad": True}),
    ("sparse_coo", {"indices": COO["indices"]}, SHAPE),
    ("sparse_coo", COO | {"values": None}, SHAPE),
    ("sparse_csr", CSR | {"col_indices": I([3, 0])}, {"shape": (2, 3)}),
    ("sparse_csr", CSR | {"col_indices": I([-1, 0])}, {"shape": (2, 3)}),
    ("sparse_csr", CSR | {"crow_indices": I([0, 5, 2])}, {"shape": (2, 3)}),
    ("sparse_csr", CSR | {"crow_indices": I([0, 2])}, {"shape": (2, 3)}),
    ("sparse_csr", CSR, {"shape": (2**40, 3)}),
    ("sparse_csr", {}, {"shape": (2, 3)}),
    ("sparse_bsr", CSR, {"shape": (2, 3)}),
    ("per_tensor_affine", {"data": INT8}, Q | {"zero_point": 1000}),
    ("per_tensor_affine", {"data": INT8}, Q | {"zero_point": 2**70}),
    ("per_tensor_affine", {"data": INT8}, Q | {"scale": "1"}),
    ("per_tensor_affine", {"data": INT8}, Q | {"dtype": "torch.float32"}),
    ("per_tensor_affine", {"data": INT8}, Q | {"dtype": "torch.qint32"}),
    ("per_tensor_affine", {"data": INT8}, Q | {"dtype": "torch.quint8"}),
    ("per_tensor_affine", {"data": F(2)}, Q),
    ("per_tensor_affine", {"data": INT8}, {}),
    ("per_tensor_affine", {"data": torch.zeros(1, dtype=torch.int8).expand(2**40)}, Q),
    ("per_channel_affine", CHANNELS, Q | {"axis": 2}),
    ("per_channel_affine", CHANNELS, Q | {"axis": -1}),
    ("per_channel_affine", CHANNELS, Q | {"axis": "0"}),
    ("per_channel_affine", CHANNELS | {"scales": F(3)}, Q | {"axis": 0}),
    ("per_channel_affine", {"data": INT8}, Q | {"axis": 0}),
    ("nested", NESTED | {"storage_offsets": I([0, 3])}, {}),
    ("nested", NESTED | {"storage_offsets": I([-1, 2])}, {}),
    ("nested", NESTED | {"sizes": I([[2**62], [4]])}, {}),
    ("nested", NESTED | {"strides": I([[1], [2**62]])}, {}),
    ("nested", NESTED | {"sizes": F(2, 1)}, {}),
    ("nested", {"buffer": F(6)}, {}),
    ("jagged", JAGGED | {"offsets": I([0, 2, 7])}, {"_ragged_idx": 1}),
    ("jagged", JAGGED | {"offsets": I([0, 4, 2])}, {"_ragged_idx": 1}),
    ("jagged", JAGGED | {"offsets": F(3)}, {"_ragged_idx": 1}),
    ("jagged", JAGGED | {"lengths": I([5, 5])}, {"_ragged_idx": 1}),
    ("jagged", JAGGED | {"lengths": I([-1, 1])}, {"_ragged_idx": 1}),
    ("jagged", JAGGED | {"lengths": I(3)}, {"_ragged_idx": 1}),
    ("jagged", JAGGED, {"_ragged_idx": 5}),
    ("jagged", {}, {}),
    ("subclass", WRAPPED, {}),
    ("subclass", WRAPPED, TWO | {"class": 5}),
    ("subclass", WRAPPED, TWO | {"shape": (-1,)}),
    ("subclass", WRAPPED, TWO | {"shape": (2**62, 4), "strides": (4, 1)}),
    ("subclass", WRAPPED, TWO | {"strides": ()}),
    ("subclass", WRAPPED, TWO | {"mark": "System"}),
    ("subclass", WRAPPED, TWO | {"context": {"not": "None"}}),
    ("subclass", {"a": F(2)}, TWO),
    ("subclass", {}, TWO),
    ("subclass", WRAPPED | {"c": F(2)}, TWO),
    ("subclass", WRAPPED | {"b": None}, TWO),
    ("subclass", WRAPPED | {"b": torch.zeros(2, device="meta")}, TWO),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "parts", "settings"), HOSTILE)
def test_hostile_values_give_our_errors(kind: str, parts: dict[str, Any], settings: dict[str, Any]) -> None:
    with pytest.raises(FormatError):
        decode_object(EncodedObject("torch", kind, parts, settings), find_class=find_two)


def test_a_class_that_wraps_nothing_is_refused() -> None:
    with pytest.raises(FormatError, match="wrap"):
        decode_object(EncodedObject("torch", "subclass", WRAPPED, TWO), find_class=lambda _: dict)


def test_unknown_kinds_are_refused() -> None:
    with pytest.raises(UnsupportedError, match="later version"):
        decode_object(EncodedObject("torch", "holograms", {}, {}), find_class=known_class)

"""What the adapters of all array libraries keep to, and what each does with its own dtypes."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest
import torch

from tensorkeep.arrays import adapter_for, library_for, tensor_to_write
from tensorkeep.arrays.numpy._dtypes import numpy_dtype
from tensorkeep.dtypes import BY_NAME, DTYPES, DType
from tensorkeep.entries import TensorEntry
from tensorkeep.errors import DtypeError, LimitError, UnsupportedError
from tests.support.for_each import for_each

LIBRARIES = {"numpy": list(DTYPES), "torch": [dtype for dtype in DTYPES if dtype.torch]}
CASES = [(library, dtype) for library, dtypes in LIBRARIES.items() for dtype in dtypes]
EACH = pytest.mark.parametrize(("library", "dtype"), CASES, ids=lambda case: getattr(case, "name", case))
N_ELEMENTS = 24
SHAPE = (2, 3, 4)


def content_of(dtype: DType) -> bytes:
    """Return bytes for 24 elements that are valid for every dtype (0 and 1 for BOOL)."""
    nbytes = dtype.nbytes(N_ELEMENTS)
    return bytes(place % 2 if dtype.name == "BOOL" else (place * 37 + 5) % 256 for place in range(nbytes))


def file_bytes(tensor: Any, name: str = "w") -> bytes:
    return b"".join(bytes(buffer) for buffer in tensor_to_write(tensor, name).buffers())


def kind_of(library: str, dtype: DType) -> Any:
    return numpy_dtype(dtype) if library == "numpy" else getattr(torch, dtype.torch or "")


@EACH
@for_each("offset", range(9))
def test_tensors_over_a_buffer_have_its_bytes_wherever_they_lie(library: str, dtype: DType, offset: int) -> None:
    content = content_of(dtype)
    buffer = bytearray(bytes(offset) + content + b"tail")
    entry = TensorEntry(dtype.name, SHAPE, (2, 2 + len(content)))

    tensor = adapter_for(library).views(memoryview(buffer), {"w": entry}, offset - 2)["w"]

    assert tensor.dtype == kind_of(library, dtype)
    assert file_bytes(tensor) == content
    described = tensor_to_write(tensor, "w")
    assert described.dtype is dtype
    assert described.shape == SHAPE
    assert described.nbytes == len(content)
    if library == "numpy":
        assert tensor.flags.aligned
    else:
        assert tensor.data_ptr() % tensor.element_size() == 0


@EACH
def test_elements_get_their_dtype(library: str, dtype: DType) -> None:
    content = content_of(dtype)
    whole = adapter_for("numpy").views(
        memoryview(bytearray(content)), {"w": TensorEntry(dtype.name, SHAPE, (0, len(content)))}, 0
    )["w"]

    tensor = adapter_for(library).from_elements(whole.view(dtype.bits_name).copy(), dtype)

    assert tensor.dtype == kind_of(library, dtype)
    assert file_bytes(tensor) == content


@EACH
@for_each("shape", [(0,), (0, 2), (2, 0, 2), (1 << 40, 0)])
def test_no_elements_are_a_tensor_too(library: str, dtype: DType, shape: tuple[int, ...]) -> None:
    if dtype.is_packed and shape[-1] % 2:
        shape = (*shape, 2)
    entry = TensorEntry(dtype.name, shape, (0, 0))

    tensor = adapter_for(library).views(memoryview(bytearray()), {"w": entry}, 0)["w"]

    assert tensor_to_write(tensor, "w").shape == shape
    assert file_bytes(tensor) == b""
    assert tensor_to_write(tensor, "w").extent() is None


@EACH
def test_a_tensor_without_dimensions_is_one_too(library: str, dtype: DType) -> None:
    if dtype.is_packed:
        return
    content = content_of(dtype)[: dtype.itemsize]
    tensor = adapter_for(library).views(
        memoryview(bytearray(content)), {"w": TensorEntry(dtype.name, (), (0, len(content)))}, 0
    )["w"]

    assert tuple(tensor.shape) == ()
    assert file_bytes(tensor) == content


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_vast_extent_of_nothing_is_in_our_tree_or_a_tensor(library: str) -> None:
    for dtype in ("U8", "F64"):
        for shape in ((2**62, 0), (2**63 - 1, 0), (0, 2**61), (2**40, 2**23, 0)):
            entry = TensorEntry(dtype, shape, (0, 0))
            try:
                tensor = adapter_for(library).views(memoryview(bytearray()), {"w": entry}, 0)["w"]
            except LimitError as error:
                assert error.tensor == "w"  # noqa: PT017 - either outcome will do
            else:
                assert tuple(tensor.shape) == shape


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("dtype", ["F32", "BF16", "F4"])
def test_more_dimensions_than_a_library_has_are_over_a_limit(library: str, dtype: str) -> None:
    nbytes = BY_NAME[dtype].nbytes(2)
    for n_dimensions in (64, 65, 1_000):
        entry = TensorEntry(dtype, (*[1] * (n_dimensions - 1), 2), (0, nbytes))
        buffer = memoryview(bytearray(nbytes))
        if n_dimensions <= 64:
            assert len(adapter_for(library).views(buffer, {"w": entry}, 0)["w"].shape) == n_dimensions
            continue
        with pytest.raises(LimitError, match="dimensions"):
            adapter_for(library).views(buffer, {"w": entry}, 0)


@pytest.mark.parametrize("library", LIBRARIES)
def test_an_unknown_dtype_is_refused_by_name(library: str) -> None:
    with pytest.raises(DtypeError, match=r"`w` has a dtype that this version does not know.*F128"):
        adapter_for(library).views(memoryview(bytearray(4)), {"w": TensorEntry("F128", (1,), (0, 4))}, 0)


@pytest.mark.parametrize("dtype", ["F6_E2M3", "F6_E3M2"])
def test_what_torch_lacks_is_refused_with_another_way(dtype: str) -> None:
    with pytest.raises(DtypeError, match=f"torch has no dtype for {dtype}.*numpy"):
        adapter_for("torch").views(memoryview(bytearray(3)), {"w": TensorEntry(dtype, (4,), (0, 3))}, 0)


@pytest.mark.parametrize("shape", [(2, 1), (2, 3), (4, 5, 1)])
def test_torch_takes_fp4_in_pairs_only(shape: tuple[int, ...]) -> None:
    entry = TensorEntry("F4", shape, (0, int(np.prod(shape)) // 2))
    elements = np.zeros(shape, np.uint8)
    odd = np.zeros((3,), np.uint8)

    with pytest.raises(DtypeError, match="pairs"):
        adapter_for("torch").views(memoryview(bytearray(entry.nbytes)), {"w": entry}, 0)
    for part in (elements, odd):
        with pytest.raises(DtypeError, match="pairs"):
            adapter_for("torch").from_elements(part, BY_NAME["F4"])


def test_torch_fp4_has_half_the_last_dimension() -> None:
    entry = TensorEntry("F4", (2, 4), (0, 4))

    tensor = adapter_for("torch").views(memoryview(bytearray(b"\x21\x43\x65\x87")), {"w": entry}, 0)["w"]

    assert tensor.dtype == torch.float4_e2m1fn_x2
    assert tuple(tensor.shape) == (2, 2)
    assert tensor.view(torch.uint8).tolist() == [[0x21, 0x43], [0x65, 0x87]]
    assert tensor_to_write(tensor, "w").shape == (2, 4)


@pytest.mark.parametrize(
    ("framework", "name"),
    [("np", "numpy"), ("numpy", "numpy"), ("pt", "torch"), ("torch", "torch"), ("pytorch", "torch")],
)
def test_every_name_of_a_framework_leads_to_its_library(framework: str, name: str) -> None:
    made = adapter_for(framework).from_elements(np.zeros(2, np.uint32), BY_NAME["F32"])

    assert library_for(framework).name == name
    assert type(made).__module__ == name


@pytest.mark.parametrize("framework", ["bad", "NumPy", "", "TF", "keras"])
def test_other_frameworks_are_refused(framework: str) -> None:
    with pytest.raises(UnsupportedError, match=f"framework {framework} is invalid"):
        adapter_for(framework)


def test_numpy_has_no_devices() -> None:
    with pytest.raises(UnsupportedError, match="Device cuda is not supported for framework numpy"):
        adapter_for("numpy", "cuda")


@pytest.mark.parametrize("value", [1, 1.0, [1, 2], None, "w", b"bytes", {"a": 1}, memoryview(b"x"), object()])
def test_what_is_no_tensor_is_refused_by_name(value: Any) -> None:
    with pytest.raises(UnsupportedError, match="`w` is not a tensor"):
        tensor_to_write(value, "w")


@pytest.mark.parametrize("dtype", ["U4", "O", "c16", "g", "M8[s]", [("a", "f4")], "V3"], ids=str)
def test_a_numpy_dtype_that_the_format_lacks_is_refused_by_name(dtype: Any) -> None:
    with pytest.raises(DtypeError, match="`w` has a dtype that the format cannot hold"):
        tensor_to_write(np.zeros(2, dtype), "w")


@pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor")
def test_a_torch_dtype_that_the_format_lacks_is_refused_by_name() -> None:
    for tensor in (
        torch.zeros(2, dtype=torch.complex128),
        torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.qint8),
    ):
        with pytest.raises(DtypeError, match="`w` has a dtype that the format cannot hold"):
            tensor_to_write(tensor, "w")


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support")
def test_a_tensor_without_plain_data_is_refused_by_name() -> None:
    dense = torch.eye(3)
    for tensor, found in (
        (dense.to_sparse(), "sparse_coo"),
        (dense.to_sparse_csr(), "sparse_csr"),
        (dense.to("meta"), "meta"),
    ):
        with pytest.raises(UnsupportedError, match=f"`w` has no bytes of its own here.*{found}"):
            tensor_to_write(tensor, "w")


def test_a_library_that_is_missing_is_named_with_the_way_to_get_it() -> None:
    program = """
import sys
sys.modules["torch"] = None
from tensorkeep.arrays import adapter_for
try:
    adapter_for("torch")
except ImportError as error:
    print(type(error).__name__, error)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert done.stdout.startswith("MissingDependencyError torch is not installed")
    assert 'pip install "tensorkeep[torch]"' in done.stdout


def test_public_modules_without_their_library_name_the_way_to_get_it() -> None:
    program = """
import importlib, sys
missing = {"torch": "torch", "integrations.skorch": "skorch", "integrations.accelerate": "accelerate",
    "integrations.transformers": "accelerate", "integrations.distributed": "torch", "integrations.lightning": "torch"}
sys.modules.update(dict.fromkeys(missing.values()))
for module, library in missing.items():
    try:
        importlib.import_module(f"tensorkeep.{module}")
    except ModuleNotFoundError as error:
        install = {"torch": '"tensorkeep[torch]"'}.get(library, library)
        assert str(error) == f"{library} is not installed. Install it: pip install {install}", (module, error)
        print(type(error).__name__)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)

    assert done.stdout.split() == ["MissingDependencyError"] * 6

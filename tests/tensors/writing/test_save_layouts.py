"""Tensors of every layout in memory are saved as the bytes that safetensors writes from contiguous copies."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import ml_dtypes
import numpy as np
import pytest
import safetensors.numpy
import safetensors.torch
import torch
from hypothesis import given, settings

import tensorkeep
from tensorkeep.arrays import tensor_to_write
from tensorkeep.dtypes import BY_NAME, DTYPES
from tensorkeep.tensors import serialize_tensors
from tests.support import forks
from tests.support.soak import rounds
from tests.support.tensors.plain_files import Known, same_bits

TORCH_NAMES = [dtype.name for dtype in DTYPES if dtype.torch]

NUMPY_LAYOUTS: dict[str, Callable[[Any], Any]] = {
    "contiguous": lambda a: a,
    "transposed": lambda a: a.T,
    "axes moved": lambda a: np.moveaxis(a, 0, 1),
    "Fortran": np.asfortranarray,
    "strided": lambda a: a[::2, :, 1::2],
    "negative strides": lambda a: a[::-1, :, ::-1],
    "broadcast": lambda a: np.broadcast_to(a[:1], a.shape),
    "one row": lambda a: a[1],
    "offset": lambda a: a[1:, 1:, 2:],
    "empty": lambda a: a[:0],
    "scalar": lambda a: a[0, 0, 0],
    "0-d": lambda a: a[0, 0, 0, ...],
    "big endian": lambda a: a.astype(a.dtype.newbyteorder(">")),
    "big endian and strided": lambda a: a.astype(a.dtype.newbyteorder(">"))[:, ::-1],
    "read-only": lambda a: np.frombuffer(a.tobytes(), a.dtype).reshape(a.shape),
    "misaligned": lambda a: np.frombuffer(b"x" + a.tobytes(), np.uint8)[1:].view(a.dtype).reshape(a.shape),
    "subclass": np.ma.masked_array,
}

TORCH_LAYOUTS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "contiguous": lambda t: t,
    "transposed": lambda t: t.transpose(0, 2),
    "permuted": lambda t: t.permute(2, 0, 1),
    "strided": lambda t: t[::2, :, 1::2],
    "expanded": lambda t: t[:1].expand(5, 4, 6),
    "one row": lambda t: t[1],
    "offset": lambda t: t[1:, 1:, 2:],
    "empty": lambda t: t[:0],
    "0-d": lambda t: t[0, 0, 0],
    "unfolded": lambda t: t.unfold(2, 3, 1),
    "channels last": lambda t: t.reshape(3, 4, 2, 3).to(memory_format=torch.channels_last),
}


def has_layout(known: Known, layout: str) -> bool:
    """Whether a dtype comes in a layout: those of ml_dtypes have one byte order, and half bytes are not saved."""
    n_elements = NUMPY_LAYOUTS[layout](np.zeros(known.array.shape)).size
    return not ("endian" in layout and not known.dtype.is_in_numpy) and n_elements * known.dtype.bits % 8 == 0


@pytest.mark.parametrize("layout", NUMPY_LAYOUTS)
def test_numpy_arrays_of_any_layout(layout: str, tmp_path: Path) -> None:
    known = {dtype.name: Known.random(dtype.name, (3, 4, 6), dtype.rank) for dtype in DTYPES}
    arrays = {
        name: NUMPY_LAYOUTS[layout](tensor.array) for name, tensor in known.items() if has_layout(tensor, layout)
    }
    tensorkeep.save({**arrays, "n": np.uint8(7)}, tmp_path / "model.safetensors", digests=False)

    plain = {name: np.array(array, known[name].array.dtype, copy=True, order="C") for name, array in arrays.items()}
    with tensorkeep.open(tmp_path / "model.safetensors") as file:
        for name, array in plain.items():
            assert file[name].dtype == name
            assert file[name].shape == array.shape
            assert file[name].nbytes == len(Known(known[name].dtype, array).data)
            assert same_bits(file[name].load(), array)
        assert len(file) == 1 + len(arrays) >= 14
    every = {name: Known(known[name].dtype, array) for name, array in plain.items()}
    for name, tensor in every.items():
        assert serialize_tensors({"w": tensor_to_write(arrays[name], "w")}).endswith(tensor.data)


def reference_array(array: Any) -> Any:
    return np.ascontiguousarray(np.asarray(array).astype(array.dtype.newbyteorder("="))).reshape(np.shape(array))


@pytest.mark.parametrize("layout", [layout for layout in NUMPY_LAYOUTS if layout != "subclass"])
def test_numpy_files_are_those_of_safetensors(layout: str, tmp_path: Path) -> None:
    names = [dtype.name for dtype in DTYPES if dtype.is_in_numpy or dtype.name == "BF16"]
    tensors = {
        f"{name}.w": NUMPY_LAYOUTS[layout](Known.random(name, (3, 4, 6), seed).array)
        for seed, name in enumerate(names)
        if name != "BF16" or "endian" not in layout
    }
    tensorkeep.save(tensors, tmp_path / "model.safetensors", metadata={"format": "np"}, digests=False)

    plain = {name: reference_array(array) for name, array in tensors.items()}
    assert (tmp_path / "model.safetensors").read_bytes() == safetensors.numpy.save(plain, {"format": "np"})


def torch_tensor(name: str, shape: tuple[int, ...], seed: int = 0) -> torch.Tensor:
    known = Known.random(name, shape, seed)
    plain = torch.frombuffer(bytearray(known.data), dtype=torch.uint8)
    dtype = getattr(torch, BY_NAME[name].torch or "")
    shape_in_torch = (*shape[:-1], shape[-1] // 2) if name == "F4" else shape
    return plain.view(dtype).reshape(shape_in_torch)


@pytest.mark.parametrize("layout", TORCH_LAYOUTS)
def test_torch_files_are_those_of_safetensors(layout: str, tmp_path: Path) -> None:
    names = [name for name in TORCH_NAMES if name != "F4"]
    tensors = {name: TORCH_LAYOUTS[layout](torch_tensor(name, (3, 4, 6), rank)) for rank, name in enumerate(names)}
    tensorkeep.save(tensors, tmp_path / "model.safetensors", metadata={"format": "pt"}, digests=False)

    plain = {name: tensor.clone(memory_format=torch.contiguous_format) for name, tensor in tensors.items()}
    assert (tmp_path / "model.safetensors").read_bytes() == safetensors.torch.save(plain, {"format": "pt"})


@pytest.mark.parametrize("layout", [layout for layout in TORCH_LAYOUTS if layout != "0-d"])
def test_torch_s_fp4_is_moved_as_bytes(layout: str, tmp_path: Path) -> None:
    """torch itself copies no such tensor: `contiguous` is not implemented for it."""
    numbers = torch.arange(72, dtype=torch.uint8).reshape(3, 4, 6)
    tensor = TORCH_LAYOUTS[layout](numbers.view(torch.float4_e2m1fn_x2))
    tensorkeep.save({"w": tensor}, tmp_path / "model.safetensors", digests=False)

    plain = TORCH_LAYOUTS[layout](numbers).contiguous().clone(memory_format=torch.contiguous_format)
    expected = safetensors.torch.save({"w": plain.view(torch.float4_e2m1fn_x2)})
    assert (tmp_path / "model.safetensors").read_bytes() == expected


def test_torch_views_that_are_computed_when_read(tmp_path: Path) -> None:
    complex_numbers = torch.tensor([[1 + 2j, 3 - 4j], [5j, -6]], dtype=torch.complex64)
    tensors = {
        "conj": complex_numbers.conj(),
        "conj transposed": complex_numbers.mH,
        "neg": complex_numbers.conj().imag,
        "neg strided": complex_numbers.conj().imag[:, 1],
        "real": complex_numbers.real,
    }
    assert tensors["conj"].is_conj()
    assert tensors["neg"].is_neg()
    tensorkeep.save(tensors, tmp_path / "model.safetensors", ties="copy", digests=False)

    plain = {name: tensor.resolve_conj().resolve_neg().contiguous().clone() for name, tensor in tensors.items()}
    assert (tmp_path / "model.safetensors").read_bytes() == safetensors.torch.save(plain)


@pytest.mark.parametrize("strides", [(0,), (1,), (7,)])
def test_no_elements_have_no_bytes_whatever_their_strides(strides: tuple[int], tmp_path: Path) -> None:
    tensors = {
        "torch": torch.empty_strided((0,), strides, dtype=torch.int16),
        "numpy": np.lib.stride_tricks.as_strided(np.zeros(9, np.int16), (0,), strides),
    }
    tensorkeep.save(tensors, tmp_path / "model.safetensors", digests=False)

    loaded = tensorkeep.load(tmp_path / "model.safetensors")
    assert all(same_bits(loaded[name], np.zeros(0, np.int16)) for name in tensors)


def test_parameters_buffers_and_what_needs_gradients(tmp_path: Path) -> None:
    module = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4))
    grown = (torch.ones(3, requires_grad=True) * 2).exp()
    tensors = {**dict(module.named_parameters()), **dict(module.named_buffers()), "grown": grown}
    tensorkeep.save(tensors, tmp_path / "model.safetensors", digests=False)

    plain = {name: tensor.detach().clone() for name, tensor in tensors.items()}
    assert (tmp_path / "model.safetensors").read_bytes() == safetensors.torch.save(plain)
    assert grown.requires_grad


@given(data=st.data())
@settings(max_examples=rounds(60, 1_500))
def test_any_view_of_an_array_is_saved_as_its_copy(data: st.DataObject) -> None:
    shape = tuple(data.draw(st.lists(st.integers(1, 6), min_size=1, max_size=4)))
    known = Known.random(data.draw(st.sampled_from([dtype.name for dtype in DTYPES if dtype.bits >= 8])), shape)
    steps = st.sampled_from([1, 2, 3, -1, -2])
    view = known.array[tuple(slice(None, None, data.draw(steps)) for _ in shape)]
    view = view.transpose(data.draw(st.permutations(range(len(shape)))))

    file = serialize_tensors({"w": tensor_to_write(view, "w")})

    assert same_bits(tensorkeep.load(file)["w"], np.array(view, order="C", copy=True))


def test_large_tensors_are_cut_into_pieces(tmp_path: Path) -> None:
    big = np.random.default_rng(0).integers(0, 255, (3_000, 7_001), np.uint8)
    tensors = {
        "transposed": big.T,
        "strided": big[:, ::-2],
        "big": big,
        "fp4": (big[:2_000, :7_000] & 15).view(ml_dtypes.float4_e2m1fn),
    }
    tensorkeep.save(tensors, tmp_path / "model.safetensors", ties="copy", digests=False)
    loaded = tensorkeep.load(tmp_path / "model.safetensors")

    for name, tensor in tensors.items():
        np.testing.assert_array_equal(loaded[name].view(np.uint8), np.ascontiguousarray(tensor).view(np.uint8))


def test_pieces_of_torch_tensors_too(tmp_path: Path) -> None:
    big = torch.arange(3_000 * 7_001, dtype=torch.int32).reshape(3_000, 7_001)
    tensors = {"transposed": big.T, "strided": big[:, ::3], "expanded": big[:1].expand(500, 7_001)}
    tensorkeep.save(tensors, tmp_path / "model.safetensors", ties="copy", digests=False)
    loaded = tensorkeep.load(tmp_path / "model.safetensors", framework="torch")

    assert all(torch.equal(loaded[name], tensor) for name, tensor in tensors.items())


PEAK_MEMORY = """
import os, sys
import numpy as np
import psutil, torch
import tensorkeep
kind, folder = sys.argv[1:]
n = 4_096
if kind.startswith("numpy"):
    whole = np.ones((n, n * 2), np.float32)
    tensor = {"transposed": whole.T, "strided": whole[:, ::-1], "fp4": None, "contiguous": whole}[kind.split()[1]]
    if tensor is None:
        import ml_dtypes
        tensor = np.ones((n, n * 2), np.uint8).view(ml_dtypes.float4_e2m1fn).T
else:
    whole = torch.ones(n, n * 2)
    tensor = {"transposed": whole.T, "strided": whole[:, ::2], "contiguous": whole}[kind.split()[1]]
tensorkeep.save({"w": tensor[:8, :8]}, os.path.join(folder, "warm"), durable=False)
def status(key):
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith(key + ":")) / 1024
open("/proc/self/clear_refs", "w").write("5")  # the peak counts from here
before = status("VmRSS")
tensorkeep.save({"w": tensor}, os.path.join(folder, "model"), durable=False)
print(status("VmHWM") - before, os.path.getsize(os.path.join(folder, "model")))
"""


@pytest.mark.parametrize(
    "kind",
    [
        "numpy contiguous",
        "numpy transposed",
        "numpy strided",
        "numpy fp4",
        "torch contiguous",
        "torch transposed",
        "torch strided",
    ],
)
def test_saving_a_large_tensor_takes_little_more_memory(kind: str, tmp_path: Path) -> None:
    done = forks.run(PEAK_MEMORY, kind, tmp_path)

    assert done.returncode == 0, done.stderr
    extra_mib, nbytes = done.stdout.split()
    assert float(extra_mib) < 32
    assert int(nbytes) > 16_000_000

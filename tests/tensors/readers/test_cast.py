"""Casts: the numbers of torch and NumPy, the same whatever reads them, in bounded memory on the way to a file."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch

import tensorkeep
from tensorkeep.dtypes import BY_NAME, DTYPES
from tensorkeep.errors import DtypeError
from tensorkeep.tensors import StoredTensor
from tests.support.tensors.plain_files import WAYS, Known, file_of, opened, same_bits

TARGETS = ["F64", "F32", "F16", "BF16", "F8_E5M2", "F8_E4M3", "F8_E5M2FNUZ", "F8_E4M3FNUZ"]
FLOATS = [dtype.name for dtype in DTYPES if dtype.is_float]


def numbers_of(tensor: Any) -> np.ndarray[Any, Any]:
    """Return the elements in double precision."""
    if isinstance(tensor, torch.Tensor):
        return tensor.to(torch.float64).numpy()
    with np.errstate(invalid="ignore"):
        return tensor.astype(np.float64)


def same_numbers(left: Any, right: Any) -> bool:
    """Say whether numbers are equal, zeros in their sign too, and NaN in the same places."""
    left, right = numbers_of(left), numbers_of(right)
    signs = np.signbit(left) == np.signbit(right)
    return np.array_equal(left, right, equal_nan=True) and bool((signs | np.isnan(left)).all())


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("stored", FLOATS)
def test_every_way_of_reading_gives_the_same_numbers(tmp_path: Path, stored: str, target: str) -> None:
    known = Known.random(stored, (64, 6), 1)
    files, wholes = [], []
    for way in WAYS:
        for framework in ("numpy", "torch"):
            with opened(file_of({"odd": Known.random("U8", (1,)), "w": known}), way, framework=framework) as file:
                lazy = file.cast(target)["w"]
                wholes.append(
                    lazy.load() if known.dtype.is_packed or framework == "numpy" else file.cast(target).load()["w"]
                )
                assert same_numbers(lazy[3:50:7, [4, 1]], numbers_of(wholes[0])[3:50:7, [4, 1]])
                tensorkeep.save({"w": lazy}, tmp_path / "saved", durable=False)
                files.append((tmp_path / "saved").read_bytes())
                assert lazy.dtype == target
                assert lazy.nbytes == len(files[-1]) - tensorkeep.open(files[-1]).data_start

    assert all(same_numbers(whole, wholes[0]) for whole in wholes)
    assert len(set(files)) == 1
    assert same_numbers(tensorkeep.load(files[0])["w"], wholes[0])


@pytest.mark.parametrize("size", [0, 1, 2**18 - 1, 2**18, 2**18 + 1, 3 * 2**18 + 5])
def test_saved_pieces_are_the_whole(tmp_path: Path, size: int) -> None:
    known = Known(BY_NAME["F32"], np.random.default_rng(0).normal(size=size).astype("f4"))
    with opened(file_of({"w": known}), "mmap") as file:
        tensorkeep.save(file.cast("bf16"), tmp_path / "saved", durable=False)

    assert same_bits(tensorkeep.load(tmp_path / "saved")["w"], known.array.astype(ml_dtypes.bfloat16))


def test_packed_pieces_are_the_whole(tmp_path: Path) -> None:
    known = Known.random("F6_E2M3", (2**18 + 8,))
    tensorkeep.save({"w": known.array}, tmp_path / "packed", durable=False)
    packed = tensorkeep.open(tmp_path / "packed", framework="torch")
    tensorkeep.save(packed.cast(torch.float16), tmp_path / "saved", durable=False)

    assert same_bits(tensorkeep.load(tmp_path / "saved")["w"], known.array.astype("f4").astype("f2"))


def test_a_cast_of_a_cast_rounds_twice(tmp_path: Path) -> None:
    known = Known(BY_NAME["F64"], np.random.default_rng(0).normal(size=1_000))
    once = torch.from_numpy(known.array).to(torch.bfloat16)
    with opened(file_of({"w": known}), "mmap", framework="torch") as file:
        twice = file.cast("bf16").cast("f8_e4m3")["w"]
        tensorkeep.save({"w": twice}, tmp_path / "saved", durable=False)

        assert torch.equal(file.cast("bf16").cast("f32").load()["w"], once.to(torch.float32))
        assert same_numbers(twice.load(), once.to(torch.float8_e4m3fn))
        assert same_numbers(tensorkeep.load(tmp_path / "saved")["w"], twice[...])


def test_what_is_no_floating_point_number_stays(tmp_path: Path) -> None:
    tensors = {name: Known.random(name, (4,)) for name in ("I64", "BOOL", "C64", "U8", "BF16")}
    with opened(file_of(tensors), "mmap") as file:
        view = file.cast("bfloat16")

        assert all(isinstance(lazy.tensor_to_write(), StoredTensor) for lazy in view.values())
        assert all(same_bits(array, tensors[name].array) for name, array in view.load().items())
        assert not isinstance(file.cast("f16")["BF16"].tensor_to_write(), StoredTensor)


@pytest.mark.parametrize(
    "target", ["int8", "F4", "F6_E2M3", "F8_E8M0", "bool", "complex64", "f4", "float", float, "x", None]
)
def test_what_cannot_hold_plain_numbers_is_no_target(target: Any) -> None:
    with pytest.raises(DtypeError):
        tensorkeep.open(file_of({})).cast(target)


@pytest.mark.parametrize(
    "spelling",
    ["bf16", "BF16", "bfloat16", "torch.bfloat16", ml_dtypes.bfloat16, np.dtype(ml_dtypes.bfloat16), torch.bfloat16],
)
def test_any_usual_spelling_will_do(spelling: Any) -> None:
    with opened(file_of({"w": Known.random("F32", (2,))}), "bytes") as file:
        assert file.cast(spelling)["w"].dtype == "BF16"


def test_a_slice_reads_the_slice(tmp_path: Path) -> None:
    known = Known(BY_NAME["F32"], np.arange(2**20, dtype="f4").reshape(1024, 1024))
    path = tmp_path / "model"
    path.write_bytes(file_of({"w": known}))
    program = f"""
import tensorkeep
lazy = tensorkeep.open({str(path)!r}, backend="pread").cast("f16")["w"]
lazy[0, :3]
before = open("/proc/self/io").read()
part = lazy[100:102]
after = open("/proc/self/io").read()
read = lambda text: int(text.split("rchar: ")[1].split()[0])
print(part.shape, part.dtype, read(after) - read(before))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    shape_and_dtype, n_read = done.stdout.rsplit(maxsplit=1)

    assert shape_and_dtype == "(2, 1024) float16"
    assert 2 * 4096 <= int(n_read) < 4 * 4096


@pytest.mark.parametrize("backend", ["mmap", "pread"])
def test_saving_a_cast_takes_little_memory(tmp_path: Path, backend: str) -> None:
    known = Known(BY_NAME["F32"], np.ones(2**26, "f4"))
    path = tmp_path / "model"
    path.write_bytes(file_of({"w": known}))
    program = f"""
import resource
import ml_dtypes, numpy
import tensorkeep
file = tensorkeep.open({str(path)!r}, backend={backend!r})
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
tensorkeep.save(file.cast("bf16"), {str(tmp_path / "saved")!r}, durable=False)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert int(done.stdout) < 64 * 1024  # KiB, of 256 MiB read and 128 MiB written
    assert (tmp_path / "saved").stat().st_size > 2**27

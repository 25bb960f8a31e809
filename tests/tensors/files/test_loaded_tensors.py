"""Loaded tensors: each its own, writable, aligned, and never the file's."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch

import tensorkeep
from tensorkeep.dtypes import BY_NAME, DTYPES
from tensorkeep.errors import DtypeError, LimitError, SourceChangedError, TensorkeepError
from tests.support.for_each import for_each
from tests.support.tensors.plain_files import WAYS, Known, file_of, opened, same_bits

EACH_WAY = pytest.mark.parametrize("way", WAYS)
NAMES = [dtype.name for dtype in DTYPES]
FILE = file_of({
    "odd": Known.random("U8", (3,), 1),
    "a": Known.random("F32", (4, 5), 2),
    "empty": Known.random("F64", (0, 3), 3),
    "b": Known.random("BF16", (7,), 4),
    "scalar": Known.random("I64", (), 5),
    "fp4": Known.random("F4", (3, 4), 6),
    "c": Known.random("F8_E4M3", (2, 2), 7),
})
NAMES_IN_FILE = ["odd", "a", "empty", "b", "scalar", "fp4", "c"]


def bits_of(tensor: torch.Tensor) -> bytes:
    return tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()


@EACH_WAY
@pytest.mark.parametrize("dtype", NAMES)
@for_each("padding", [0, 1, 3, 4])
def test_each_dtype_loads_from_any_offset(dtype: str, way: str, padding: int) -> None:
    known = Known.random(dtype, (3, 4))
    file = file_of({"before": Known.random("U8", (padding,)), "w": known}, padding=padding)
    with opened(file, way) as opened_file:
        loaded = opened_file.load()["w"]
        alone = opened_file["w"].load()

    assert same_bits(loaded, known.array)
    assert same_bits(alone, known.array)
    assert loaded.flags.aligned
    assert loaded.flags.writeable
    assert loaded.flags.c_contiguous
    if BY_NAME[dtype].torch:
        with opened(file, way, framework="torch") as opened_file:
            tensor = opened_file.load()["w"]
        assert bits_of(tensor) == known.data
        assert str(tensor.dtype) == f"torch.{BY_NAME[dtype].torch}"
        assert tensor.data_ptr() % tensor.element_size() == 0
        assert tensor.is_contiguous()


@EACH_WAY
def test_tensors_come_in_the_order_of_the_file(way: str) -> None:
    with opened(FILE, way) as file:
        assert list(file) == list(file.load()) == NAMES_IN_FILE
        assert list(file.load(["b", "odd"])) == ["odd", "b"]
        assert file.load([]) == {}
        for name, array in file.load(["c", "a", "empty"]).items():
            assert same_bits(array, file[name][...])


@EACH_WAY
def test_each_torch_tensor_has_storage_bounds_of_its_own(way: str) -> None:
    with opened(FILE, way, framework="torch") as file:
        tensors = file.load()
    for tensor in tensors.values():
        assert tensor.untyped_storage().nbytes() == tensor.numel() * tensor.element_size()
        assert tensor.storage_offset() == 0
    places = sorted(
        (t.data_ptr(), t.data_ptr() + t.numel() * t.element_size()) for t in tensors.values() if t.numel()
    )
    assert all(earlier[1] <= later[0] for earlier, later in pairwise(places))


@EACH_WAY
def test_each_torch_tensor_has_a_version_counter_of_its_own(way: str) -> None:
    file = file_of({name: Known.random("F32", (3, 3), seed) for seed, name in enumerate("abc")})
    with opened(file, way, framework="torch") as opened_file:
        tensors = opened_file.load()
    tensors["a"].requires_grad_()
    product = (tensors["a"] * tensors["b"]).nansum()  # saves both for the backward pass
    versions = [tensor._version for tensor in tensors.values()]
    tensors["c"].mul_(2)
    tensors["c"][0] = 1

    assert [tensor._version for tensor in tensors.values()][:2] == versions[:2]
    product.backward()
    assert tensors["a"].grad is not None


@EACH_WAY
@pytest.mark.parametrize("framework", ["numpy", "torch"])
def test_writing_reaches_neither_the_file_nor_another_load(way: str, framework: str, tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(FILE)
    names = ["odd", "a", "b", "scalar"]
    raw = bits_of if framework == "torch" else np.ndarray.tobytes
    with tensorkeep.open(**WAYS[way](path), framework=framework) as file:
        first, second = file.load(names), file.load(names)
        alone = file["a"].load()
        before = {name: raw(file[name][...]) for name in names}
        for tensor in first.values():
            tensor[...] = 1
        for name in names:
            assert raw(second[name]) == raw(file[name][...]) == before[name]
            assert raw(first[name]) != before[name]
        assert raw(alone) == before["a"]
    gc.collect()

    assert path.read_bytes() == FILE


@EACH_WAY
def test_tensors_outlive_the_file(way: str) -> None:
    with opened(FILE, way, framework="torch") as file:
        tensors = file.load(["a", "b"])
        expected = {name: bits_of(file[name][...]) for name in tensors}
    del file
    gc.collect()

    assert {name: bits_of(tensor) for name, tensor in tensors.items()} == expected


def test_loaded_tensors_keep_their_values_when_the_file_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    tensorkeep.save({"w": np.zeros(100_000)}, path)
    loaded = tensorkeep.load(path)
    lazy = tensorkeep.open(path)["w"]
    tensorkeep.save({"w": np.ones(100_000)}, path)

    assert loaded["w"].sum() == 0
    assert lazy[:].sum() == 0
    assert tensorkeep.load(path)["w"].sum() == 100_000


def test_a_file_can_be_saved_over_itself(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    tensorkeep.save({"w": np.arange(100_000), "b": np.ones(3)}, path)
    content = path.read_bytes()
    with tensorkeep.open(path) as file:
        tensorkeep.save(file, path)
    assert path.read_bytes() == content
    tensorkeep.save(tensorkeep.load(path), path)
    assert path.read_bytes() == content


@EACH_WAY
@pytest.mark.parametrize("framework", ["numpy", "torch"])
def test_a_file_without_tensors_loads_nothing(way: str, framework: str) -> None:
    with opened(file_of({}), way, framework=framework) as file:
        assert file.load() == {}
        assert len(file) == 0
        assert file.nbytes == 0


@EACH_WAY
@pytest.mark.parametrize("framework", ["numpy", "torch"])
def test_too_many_dimensions_are_listed_and_refused_when_loaded(way: str, framework: str) -> None:
    text = '{"w":{"dtype":"F32","shape":' + str([1] * 65) + ',"data_offsets":[0,4]}}'
    with opened(len(text).to_bytes(8, "little") + text.encode() + bytes(4), way, framework=framework) as file:
        assert file["w"].ndim == 65
        for read in (file.load, file["w"].load, lambda: file["w"][...], lambda: file["w"][0]):
            with pytest.raises(LimitError, match="dimensions"):
                read()


@EACH_WAY
@pytest.mark.parametrize("framework", ["numpy", "torch"])
@pytest.mark.parametrize("shape", ["[9223372036854775807,0]", "[0,4611686018427387904]", "[1073741824,1073741824,0]"])
def test_a_vast_extent_of_nothing_is_listed_and_a_limit_or_a_tensor(way: str, framework: str, shape: str) -> None:
    text = '{"w":{"dtype":"F64","shape":' + shape + ',"data_offsets":[0,0]}}'
    with opened(len(text).to_bytes(8, "little") + text.encode(), way, framework=framework) as file:
        assert file["w"].n_elements == 0
        for read in (file.load, file["w"].load, lambda: file["w"][...]):
            try:
                assert read() is not None
            except TensorkeepError as error:
                assert isinstance(error, LimitError)  # noqa: PT017 - either outcome will do


UNKNOWN = (
    '{"x":{"dtype":"F128","shape":[2],"data_offsets":[0,32]},"y":{"dtype":"U8","shape":[2],"data_offsets":[32,34]}}'
)
UNKNOWN_FILE = len(UNKNOWN).to_bytes(8, "little") + UNKNOWN.encode() + bytes(range(34))


@EACH_WAY
@pytest.mark.parametrize("framework", ["numpy", "torch"])
def test_an_unknown_dtype_is_listed_and_copied_and_refused_when_loaded(
    way: str, framework: str, tmp_path: Path
) -> None:
    with opened(UNKNOWN_FILE, way, framework=framework) as file:
        lazy = file["x"]
        assert (lazy.dtype, lazy.shape, lazy.nbytes) == ("F128", (2,), 32)
        assert "F128" in repr(lazy)
        for read in (file.load, lazy.load, lambda: lazy[...], lambda: np.asarray(lazy)):
            with pytest.raises(DtypeError, match="`x` has a dtype that this version does not know"):
                read()
        assert file.load(["y"])["y"].tolist() == [32, 33]
        tensorkeep.save({"x": lazy, "y": file["y"]}, tmp_path / "copy.safetensors")

    with tensorkeep.open(tmp_path / "copy.safetensors") as copy:
        assert copy["x"].dtype == "F128"
        assert bytes(copy["x"].source.read(copy["x"].span)) == bytes(range(32))
        assert copy["y"][...].tolist() == [32, 33]


@pytest.mark.parametrize("framework", ["numpy", "torch"])
def test_a_file_that_is_truncated_while_open_is_an_error_when_it_is_read(tmp_path: Path, framework: str) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(file_of({"w": Known.random("U8", (100_000,)), "v": Known.random("U8", (3,))}))
    with tensorkeep.open(path, backend="pread", framework=framework) as file:
        os.truncate(path, 50_000)
        assert len(file["w"][:1_000]) == 1_000
        for read in (file.load, file["v"].load, lambda: file["w"][-1], lambda: file["w"][::2]):
            with pytest.raises(SourceChangedError, match="became shorter"):
                read()


def test_one_kept_tensor_does_not_hold_the_whole_file_back() -> None:
    """Read, not mapped, tensors share allocations of at most 64 MiB."""
    program = """
import gc, os, sys, tempfile
import numpy as np, psutil, tensorkeep
path = os.path.join(tempfile.mkdtemp(), "model.safetensors")
tensorkeep.save({f"w{n:02}": np.full(2_000_000, n, np.float32) for n in range(40)}, path, durable=False)
before = psutil.Process().memory_info().rss
kept = tensorkeep.load(path, backend="pread")["w07"]
gc.collect()
print((psutil.Process().memory_info().rss - before) / 2**20, kept[5])
os.unlink(path)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    held_mib, value = done.stdout.split()
    assert float(held_mib) < 100
    assert float(value) == 7

"""The contract of an array library. A new one passes it by one class with one line:

class TestJax(ArrayLibrary):
    framework = "jax"
"""

from __future__ import annotations

from math import prod
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

import tensorkeep
from tensorkeep.arrays import adapter_for, library_for, plain_library, tensor_to_write
from tensorkeep.arrays.elements import elements_of
from tensorkeep.arrays.in_memory import TensorInMemory
from tensorkeep.arrays.sharing import shared_memory_for
from tensorkeep.dtypes import BY_NAME, DTYPES, DType
from tensorkeep.entries import TensorEntry
from tensorkeep.errors import DtypeError, UnsupportedError
from tensorkeep.limits import PACK_NBYTES

SHAPE = (2, 3, 4)
INDICES = [np.s_[1], np.s_[:, 1:, ::2], np.s_[..., ::-1], np.s_[1, 2, 3], np.s_[5:]]
EACH_DTYPE = pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: dtype.name)


def content_of(dtype: DType, shape: tuple[int, ...] = SHAPE) -> bytes:
    """Return bytes that are elements of a dtype: 0 and 1 for BOOL, anything else for the others."""
    n_values = 2 if dtype.name == "BOOL" else 251
    return bytes(place * 37 % n_values for place in range(dtype.nbytes(prod(shape))))


def file_bytes(tensor: Any) -> bytes:
    """Return what a file would hold of a tensor."""
    return b"".join(bytes(buffer) for buffer in tensor_to_write(tensor, "w").buffers())


class ArrayLibrary:
    """What every array library does; subclasses name it."""

    framework: ClassVar[str]
    largest_extent: ClassVar[int] = 2**40
    """Elements that the library can count along one dimension, as far as this asks."""

    def has(self, dtype: DType) -> bool:
        """Say whether the library has a dtype."""
        try:
            self.tensor(dtype, SHAPE)
        except DtypeError:
            return False
        return True

    def tensor(self, dtype: DType, shape: tuple[int, ...] = SHAPE) -> Any:
        """Return a tensor of the library."""
        content = bytearray(content_of(dtype, shape))
        elements = elements_of("w", TensorEntry(dtype.name, shape, (0, len(content))), content, 0)
        return adapter_for(self.framework).from_elements(elements.copy(), dtype)

    def transposed(self, tensor: Any) -> Any:
        """Return a tensor with its dimensions in the other order."""
        return tensor.T

    @pytest.fixture
    def any_dtype(self) -> DType:
        """Return a dtype that the library has and whose elements do not share bytes."""
        return next(dtype for dtype in reversed(DTYPES) if not dtype.is_packed and self.has(dtype))

    @EACH_DTYPE
    @pytest.mark.parametrize("offset", [0, 1, 2, 4, 8, 64])
    def test_a_tensor_over_a_buffer_has_its_bytes(self, dtype: DType, offset: int) -> None:
        if not self.has(dtype):
            return
        content = content_of(dtype)
        buffer = memoryview(bytearray(bytes(offset) + content + b"more"))
        entry = TensorEntry(dtype.name, SHAPE, (0, len(content)))

        tensor = adapter_for(self.framework).views(buffer, {"w": entry}, offset)["w"]

        described = tensor_to_write(tensor, "w")
        assert file_bytes(tensor) == content
        assert (described.dtype, described.shape, described.nbytes) == (dtype, SHAPE, len(content))
        assert plain_library(tensor) == self.framework

    @EACH_DTYPE
    def test_elements_become_a_tensor_or_an_error_that_says_what_to_do(self, dtype: DType) -> None:
        if self.has(dtype):
            assert file_bytes(self.tensor(dtype)) == content_of(dtype)
            return
        entry = TensorEntry(dtype.name, SHAPE, (0, dtype.nbytes(prod(SHAPE))))
        with pytest.raises(DtypeError, match=f"no dtype for {dtype.name}") as caught:
            adapter_for(self.framework).views(memoryview(content_of(dtype)), {"w": entry}, 0)
        assert caught.value.hint

    @EACH_DTYPE
    @pytest.mark.parametrize("shape", [(), (1,), (0,), (3, 0, 2), (2**40, 0)], ids=str)
    def test_tensors_without_dimensions_or_elements(self, dtype: DType, shape: tuple[int, ...]) -> None:
        if dtype.is_packed or not self.has(dtype) or max(shape, default=0) > self.largest_extent:
            return
        content = content_of(dtype, shape)
        entry = TensorEntry(dtype.name, shape, (0, len(content)))

        tensor = adapter_for(self.framework).views(memoryview(bytearray(content)), {"w": entry}, 0)["w"]

        assert tensor_to_write(tensor, "w").shape == shape
        assert file_bytes(tensor) == content

    @EACH_DTYPE
    def test_a_transposed_tensor_is_written_in_c_order(self, dtype: DType) -> None:
        if dtype.is_packed or not self.has(dtype):
            return
        elements = np.frombuffer(content_of(dtype, (3, 4)), f"V{dtype.itemsize}").reshape(3, 4)

        assert file_bytes(self.transposed(self.tensor(dtype, (3, 4)))) == elements.T.tobytes()

    def test_a_large_tensor_is_written_in_pieces_unless_its_memory_is_what_the_file_holds(
        self, any_dtype: DType
    ) -> None:
        shape = (1024, 3 * PACK_NBYTES // 1024 // any_dtype.itemsize)
        elements = np.frombuffer(content_of(any_dtype, shape), f"V{any_dtype.itemsize}").reshape(shape)

        described = tensor_to_write(self.transposed(self.tensor(any_dtype, shape)), "w")
        buffers = [bytes(buffer) for buffer in described.buffers()]

        assert max(map(len, buffers)) <= PACK_NBYTES or isinstance(described, TensorInMemory)
        assert b"".join(buffers) == elements.T.tobytes()

    def test_a_buffer_at_an_aligned_address_is_shared(self, any_dtype: DType) -> None:
        library = library_for(self.framework)
        content = content_of(any_dtype)
        memory = np.zeros(len(content) + 4096, np.uint8)
        begin = -memory.ctypes.data % max(library.alignment, 16)
        entry = TensorEntry(any_dtype.name, SHAPE, (0, len(content)))

        tensor = adapter_for(self.framework).views(memory.data, {"w": entry}, begin)["w"]
        memory[begin : begin + len(content)] = list(content)

        assert (file_bytes(tensor) == content) != library.copies

    def test_views_of_one_storage_have_the_same_memory_or_copies(self, any_dtype: DType) -> None:
        library = library_for(self.framework)
        shared = shared_memory_for(self.framework)
        content = content_of(any_dtype, (3, 4))
        storage = shared.storage(np.frombuffer(bytearray(content), np.uint8))
        elements = np.frombuffer(content, f"V{any_dtype.itemsize}").reshape(3, 4)

        whole = shared.view_of(storage, any_dtype, 0, (3, 4), (4, 1))
        columns = shared.view_of(storage, any_dtype, 1, (2, 3), (2, 4))

        assert file_bytes(whole) == content
        assert file_bytes(columns) == elements[:, 1::2].T.tobytes()
        extents = [tensor_to_write(tensor, "w").extent() for tensor in (whole, columns)]
        if library.can_share_memory:
            first, second = extents
            assert first is not None
            assert second is not None
            assert second.start == first.start + any_dtype.itemsize
            assert second.strides == (2, 4)

    def test_devices_are_taken_or_refused(self, any_dtype: DType) -> None:
        if library_for(self.framework).has_devices:
            elements = np.zeros(2, any_dtype.bits_name)
            assert file_bytes(adapter_for(self.framework, "cpu").from_elements(elements, any_dtype))[:1] == b"\0"
        else:
            with pytest.raises(
                UnsupportedError, match=f"Device cuda:0 is not supported for framework {self.framework}"
            ):
                adapter_for(self.framework, "cuda:0")

    def test_a_class_that_the_library_does_not_know_is_not_plain(self) -> None:
        assert plain_library(object()) is None

    def test_a_state_comes_back_from_a_file_in_the_library_it_was_of(self, tmp_path: Path, any_dtype: DType) -> None:
        path = tmp_path / "state.safetensors"
        tensor = self.tensor(any_dtype)
        tensorkeep.save({"model": {"w": tensor, "b": np.arange(3.0)}, "step": 7}, path)

        loaded = tensorkeep.load(path)

        assert type(loaded["model"]["w"]) is type(tensor)
        assert file_bytes(loaded["model"]["w"]) == file_bytes(tensor)
        assert type(loaded["model"]["b"]) is np.ndarray
        assert loaded["step"] == 7

    def test_a_file_is_opened_in_the_library(self, tmp_path: Path) -> None:
        dtypes = [dtype for dtype in DTYPES if self.has(dtype)]
        path = tmp_path / "all.safetensors"
        tensors = {dtype.name: self.tensor(dtype) for dtype in dtypes}
        tensorkeep.save(tensors, path)

        with tensorkeep.open(path, framework=self.framework) as file:
            for dtype in dtypes:
                whole = file[dtype.name].load()
                assert type(whole) is type(tensors[dtype.name])
                assert file_bytes(whole) == content_of(dtype)
        for framework in (library_for(self.framework).name, *library_for(self.framework).aliases):
            assert tensorkeep.load(path, framework=framework).keys() == tensors.keys()

    @pytest.mark.parametrize("backend", ["mmap", "pread"])
    @pytest.mark.parametrize(
        "index", [np.s_[1], np.s_[:, 1:, ::2], np.s_[..., ::-1], np.s_[1, 2, 3], np.s_[5:]], ids=str
    )
    def test_a_slice_is_what_numpy_makes_of_it(
        self, tmp_path: Path, any_dtype: DType, backend: Any, index: Any
    ) -> None:
        path = tmp_path / "one.safetensors"
        tensorkeep.save({"w": self.tensor(any_dtype)}, path)
        elements = np.frombuffer(content_of(any_dtype), any_dtype.bits_name).reshape(SHAPE)

        with tensorkeep.open(path, framework=self.framework, backend=backend) as file:
            part = file["w"][index]

        assert file_bytes(part) == np.asarray(elements[index]).tobytes()
        assert tensor_to_write(part, "w").shape == np.asarray(elements[index]).shape

    def test_a_checkpoint_of_several_files(self, tmp_path: Path, any_dtype: DType) -> None:
        tensors = {f"layer.{place}": self.tensor(any_dtype) for place in range(6)}

        tensorkeep.save_checkpoint(tensors, tmp_path / "set", max_shard_size=2 * len(content_of(any_dtype)))

        assert len(list((tmp_path / "set").glob("*.safetensors"))) == 3
        loaded = tensorkeep.load(tmp_path / "set", framework=self.framework)
        assert {name: file_bytes(tensor) for name, tensor in loaded.items()} == {
            name: content_of(any_dtype) for name in tensors
        }

    def test_tensors_that_shared_memory_are_loaded(self, tmp_path: Path) -> None:
        dtype = next(dtype for dtype in DTYPES if not dtype.is_packed and dtype.is_in_numpy and self.has(dtype))
        whole = np.frombuffer(bytearray(content_of(dtype, (3, 4))), dtype.numpy).reshape(3, 4)
        tensorkeep.save({"whole": whole, "column": whole[:, 1], "again": whole}, tmp_path / "tied.safetensors")

        loaded = tensorkeep.load(tmp_path / "tied.safetensors", framework=self.framework)

        assert {name: file_bytes(tensor) for name, tensor in loaded.items()} == {
            "whole": whole.tobytes(),
            "column": whole[:, 1].tobytes(),
            "again": whole.tobytes(),
        }

    def test_a_cast_gives_the_numbers_that_numpy_gives(self, tmp_path: Path) -> None:
        if not (self.has(BY_NAME["BF16"]) and self.has(BY_NAME["F32"])):
            return
        path = tmp_path / "bf16.safetensors"
        tensorkeep.save({"w": self.tensor(BY_NAME["BF16"])}, path)

        with tensorkeep.open(path, framework=self.framework) as file, tensorkeep.open(path) as expected:
            cast = file.cast("f32")["w"].load()
            numbers = expected.cast("f32")["w"].load()

        assert type(cast) is type(self.tensor(BY_NAME["F32"]))
        assert np.array_equal(np.frombuffer(file_bytes(cast), np.float32).reshape(SHAPE), numbers, equal_nan=True)

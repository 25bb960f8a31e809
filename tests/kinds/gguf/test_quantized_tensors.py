"""Quantized tensors of GGUF files: listed as what they are, read as numbers or bytes, converted as either."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest
import safetensors.numpy
import torch
from gguf import GGMLQuantizationType as Type
from gguf import GGUFEndian, GGUFReader, quants

import tensorkeep
from tensorkeep.errors import DtypeError, TransportError
from tests.support.formats.gguf_files import random_blocks, write_gguf
from tests.support.peak_memory import with_peak
from tests.support.remote.fault_server import FaultServer

F32 = {"norm": np.linspace(-1, 1, 512, dtype=np.float32)}
TYPES = [type_ for type_ in Type if type_.name in {"Q4_0", "Q8_0", "Q4_K", "Q6_K", "IQ3_S", "MXFP4", "NVFP4"}]
BLOCKS = {type_.name: (random_blocks(type_, 6, 2, seed=type_.value), type_) for type_ in TYPES}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    write_gguf(tmp_path / "m.gguf", F32, blocks=BLOCKS)
    return tmp_path / "m.gguf"


def expected(name: str, dtype: Any = np.float32) -> npt.NDArray[Any]:
    with np.errstate(all="ignore"):
        return quants.dequantize(*BLOCKS[name]).astype(dtype)


def same(found: Any, wanted: npt.NDArray[Any]) -> None:
    assert found.dtype == wanted.dtype
    assert found.shape == wanted.shape
    bits = f"u{wanted.itemsize}"
    are_nan = np.isnan(wanted.astype(np.float32))
    np.testing.assert_array_equal(np.isnan(found.astype(np.float32)), are_nan)
    np.testing.assert_array_equal(
        np.where(are_nan, 0, np.ascontiguousarray(found).view(bits)),
        np.where(are_nan, 0, np.ascontiguousarray(wanted).view(bits)),
    )


INDEXES = [
    *(np.s_[...], np.s_[1], np.s_[1:4], np.s_[::-2, 3:40:5], np.s_[:, -1]),
    *(np.s_[[5, 0, 0]], np.s_[2, [60, 3]], np.s_[:, 7:7], np.s_[None, 3, 30:]),
]


class TestNumbers:
    @pytest.mark.parametrize("dtype", ["f32", "f16", "bf16"])
    @pytest.mark.parametrize("name", BLOCKS)
    def test_whole_ones_have_the_numbers_of_gguf(self, path: Path, name: str, dtype: str) -> None:
        numpy_dtype = {"f32": np.float32, "f16": np.float16, "bf16": ml_dtypes.bfloat16}[dtype]
        with tensorkeep.open(path) as file:
            lazy = file[name].dequantize(dtype)

            assert (lazy.shape, lazy.dtype, lazy.is_floating_point) == (file[name].shape, dtype.upper(), True)
            same(lazy.load(), expected(name, numpy_dtype))
            same(np.asarray(lazy), expected(name, numpy_dtype))

    @pytest.mark.parametrize("backend", ["mmap", "pread"])
    @pytest.mark.parametrize("index", INDEXES, ids=str)
    @pytest.mark.parametrize("name", ["Q4_0", "Q6_K"])
    def test_slices_mean_what_they_mean_in_numpy(self, path: Path, name: str, index: Any, backend: Any) -> None:
        with tensorkeep.open(path, backend=backend) as file:
            same(file[name].dequantize("f32")[index], np.ascontiguousarray(expected(name)[index]))

    def test_slices_read_only_their_blocks(self, path: Path) -> None:
        with tensorkeep.open(path) as file:
            lazy = file["Q6_K"].dequantize("f32")

            assert file.plan({"Q6_K": np.s_[2]}).nbytes == 2 * 210
            assert lazy.shape == (6, 512)
            view = file.dequantize("f32")
            assert view.plan({"Q6_K": np.s_[2, 256:300]}).nbytes == 210

    def test_slices_take_one_request(self, path: Path) -> None:
        with FaultServer({"m.gguf": path.read_bytes()}) as server, tensorkeep.open(f"{server.url}m.gguf") as file:
            n_opened = len(server.requests)
            same(file["Q4_K"].dequantize("f32")[1:3], expected("Q4_K")[1:3])
            assert len(server.requests) <= n_opened + 1

    def test_views_of_files_leave_other_tensors_as_they_are(self, path: Path) -> None:
        with tensorkeep.open(path) as file:
            loaded = file.dequantize("bf16").load()

        assert loaded["norm"].dtype == np.float32
        for name in BLOCKS:
            same(loaded[name], expected(name, ml_dtypes.bfloat16))

    def test_load_dequantizes_if_asked(self, path: Path) -> None:
        same(tensorkeep.load(path, dequantize="f16", only="Q8_0")["Q8_0"], expected("Q8_0", np.float16))
        loaded = tensorkeep.load(path, dequantize="bf16", framework="torch")
        assert loaded["Q4_0"].dtype == torch.bfloat16
        wanted = expected("Q4_0", ml_dtypes.bfloat16).astype(np.float32)
        assert np.array_equal(loaded["Q4_0"].float().numpy(), wanted, equal_nan=True)

    def test_they_can_be_cast_and_sharded(self, path: Path) -> None:
        with tensorkeep.open(path) as file:
            same(file.dequantize("f32").cast("f16")["Q8_0"].load(), expected("Q8_0", np.float16))
            same(file["Q8_0"].dequantize("f32").shard(0, 1, 2), expected("Q8_0")[3:])

    def test_large_ones_are_computed_in_pieces(self, tmp_path: Path) -> None:
        rows = random_blocks(Type.Q8_0, 300, 512)
        rows.reshape(-1, 34)[:, 1] &= 0x3F  # no NaN
        write_gguf(tmp_path / "m.gguf", {}, blocks={"w": (rows, Type.Q8_0)})

        same(tensorkeep.load(tmp_path / "m.gguf", dequantize="f32")["w"], quants.dequantize(rows, Type.Q8_0))

    def test_closed_files_give_none(self, path: Path) -> None:
        file = tensorkeep.open(path)
        lazy = file["Q8_0"].dequantize("f32")
        lazy[0]
        file.close()

        with pytest.raises(TransportError, match="closed"):
            lazy[0]


class TestBytes:
    def test_rows_are_rows_of_bytes(self, path: Path) -> None:
        with tensorkeep.open(path) as file:
            for name, (rows, _) in BLOCKS.items():
                raw = file[name].raw()
                assert (raw.dtype, raw.shape) == ("U8", rows.shape)
                np.testing.assert_array_equal(raw.load(), rows)
                np.testing.assert_array_equal(raw[2:4], rows[2:4])

    def test_they_are_mapped(self, tmp_path: Path) -> None:
        rows = random_blocks(Type.Q8_0, 1000, 64)
        write_gguf(tmp_path / "m.gguf", {}, blocks={"w": (rows, Type.Q8_0)})

        with tensorkeep.open(tmp_path / "m.gguf", backend="mmap") as file:
            assert file["w"].raw().load().base is not None


class TestRefusals:
    def test_blocks_are_no_elements(self, path: Path) -> None:
        with tensorkeep.open(path) as file:
            lazy = file["Q4_K"]
            assert (lazy.dtype, lazy.shape, lazy.is_quantized) == ("Q4_K", (6, 512), True)
            assert not file["norm"].is_quantized
            for read in (lazy.load, lambda: lazy[0], lambda: np.asarray(lazy), file.load, lazy.view):
                with pytest.raises(DtypeError, match=r'is quantized.*in \d+ bytes\. .*\.dequantize\("bf16"\)'):
                    read()
            with pytest.raises(DtypeError, match=r'\.dequantize\("f16"\)'):
                lazy.cast("f16")
        with pytest.raises(DtypeError, match="dequantize="):
            tensorkeep.load(path)

    def test_other_tensors_are_not_dequantized(self, path: Path) -> None:
        with tensorkeep.open(path) as file:
            with pytest.raises(DtypeError, match="expected a quantized tensor"):
                file["norm"].dequantize()
            with pytest.raises(DtypeError, match="expected a quantized tensor"):
                file["norm"].raw()
            with pytest.raises(DtypeError, match="cannot be cast to I16"):
                file["Q8_0"].dequantize("i16")

    def test_types_without_numbers_are_refused(self, tmp_path: Path) -> None:
        write_gguf(tmp_path / "m.gguf", {}, blocks={"w": (random_blocks(Type.Q8_1, 2, 9), Type.Q8_1)})
        with tensorkeep.open(tmp_path / "m.gguf") as file, pytest.raises(DtypeError, match="ggml cannot either"):
            file["w"].dequantize()

    def test_big_endian_blocks_are_refused(self, tmp_path: Path) -> None:
        write_gguf(tmp_path / "m.gguf", {}, blocks=BLOCKS, endianess=GGUFEndian.BIG)
        with tensorkeep.open(tmp_path / "m.gguf") as file:
            with pytest.raises(DtypeError, match="a big-endian file"):
                file["Q8_0"].dequantize()
            assert file["Q8_0"].raw().shape == (6, 68)


class TestConversions:
    def test_blocks_become_rows_of_bytes_with_a_record(self, path: Path, tmp_path: Path) -> None:
        tensorkeep.convert(path, tmp_path / "a.safetensors")

        loaded = safetensors.numpy.load_file(tmp_path / "a.safetensors")
        np.testing.assert_array_equal(loaded["norm"], F32["norm"])
        for name, (rows, _) in BLOCKS.items():
            np.testing.assert_array_equal(loaded[name], rows)
        with tensorkeep.open(tmp_path / "a.safetensors") as file:
            record = json.loads(file.metadata["tensorkeep.gguf"])
            assert record["tensors"]["Q4_K"] == ["Q4_K", [6, 512]]
            assert file.metadata["general.architecture"] == "llama"

    def test_numbers_are_written_if_asked(self, path: Path, tmp_path: Path) -> None:
        tensorkeep.convert(path, tmp_path / "a", dequantize="bf16", max_shard_size=2000)

        loaded = tensorkeep.load(tmp_path / "a")
        assert loaded["norm"].dtype == np.float32
        for name in BLOCKS:
            same(loaded[name], expected(name, ml_dtypes.bfloat16))

    def test_all_of_it_in_one_dtype(self, path: Path, tmp_path: Path) -> None:
        tensorkeep.convert(path, tmp_path / "a.safetensors", dequantize="f32", cast="f16")

        loaded = safetensors.numpy.load_file(tmp_path / "a.safetensors")
        assert {array.dtype for array in loaded.values()} == {np.dtype(np.float16)}
        same(loaded["Q8_0"], expected("Q8_0", np.float16))

    def test_a_saved_view_has_the_numbers(self, path: Path, tmp_path: Path) -> None:
        with tensorkeep.open(path) as file:
            tensorkeep.save(file.dequantize("f32"), tmp_path / "a.safetensors")

        same(tensorkeep.load(tmp_path / "a.safetensors")["Q4_K"], expected("Q4_K"))

    def test_files_are_compared_block_by_block(self, path: Path, tmp_path: Path) -> None:
        assert tensorkeep.diff(path, path).is_equal
        other = BLOCKS | {"Q8_0": (BLOCKS["Q8_0"][0] ^ 1, Type.Q8_0)}
        write_gguf(tmp_path / "b.gguf", F32, blocks=other)

        difference = tensorkeep.diff(path, tmp_path / "b.gguf")

        (changed,) = difference.changed
        assert changed.name == "Q8_0"
        assert changed.n_different
        assert difference.n_equal == len(BLOCKS)

    def test_they_are_inspected_and_verified(self, path: Path) -> None:
        found = tensorkeep.verify(path)

        assert found.n_unprotected == len(BLOCKS) + 1
        with tensorkeep.open(path) as file:
            (described,) = file.describe().files
        assert described.entries["Q4_K"].dtype == "Q4_K"
        assert described.entries["Q4_K"].nbytes == GGUFReader(path).tensors[list(file).index("Q4_K")].n_bytes

    def test_memory_is_bounded(self, tmp_path: Path) -> None:
        rows = random_blocks(Type.Q8_0, 4096, 512)  # 71 MB, 134 MB as BF16
        write_gguf(tmp_path / "m.gguf", {}, blocks={"w": (rows, Type.Q8_0)})
        del rows

        _, peak_nbytes = with_peak(_convert, tmp_path / "m.gguf", tmp_path / "a.safetensors")

        assert peak_nbytes < 100_000_000


def _convert(source: Path, target: Path) -> None:
    tensorkeep.convert(source, target, dequantize="bf16")

"""The numbers of quantized tensors are those of the libraries that write them, bit for bit, whole and in parts."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tensorkeep
from tensorkeep.errors import FormatError
from tensorkeep.quantized import dequantize, layouts
from tests.support.peak_memory import with_peak

BITS = ("2 bits", "3 bits", "4 bits", "8 bits")
CASES = {
    **{
        f"{form} {bits}{order}": "gptq"
        for form in ("gptq", "gptq_v2")
        for bits in BITS
        for order in ("", ", act order")
    },
    "awq": "awq",
    **{f"packed {bits}{zeros}": "pack-quantized" for bits in (*BITS, "5 bits") for zeros in ("", ", zeros")},
    "packed channels": "pack-quantized",
    "packed whole": "pack-quantized",
    "int8 channels": "int-quantized",
    "int8 zeros": "int-quantized",
    "fp8 whole": "float-quantized",
    "fp8 channels": "float-quantized",
    "fp8 blocks": "float-quantized",
    "nvfp4": "nvfp4-pack-quantized",
    "mxfp4 rows": "mxfp4-pack-quantized",
    "mxfp8": "mxfp8-quantized",
    "modelopt nvfp4": "modelopt-nvfp4",
    "modelopt fp8": "modelopt-fp8",
    "deepseek": "block-fp8",
    "deepseek experts": "block-fp8",
    "mxfp4 experts": "mxfp4",
    "llm int8": "bitsandbytes-int8",
    **{
        f"{form} {nested}in {storage}": "bitsandbytes-4bit"
        for form in ("nf4", "fp4")
        for nested in ("", "nested ")
        for storage in ("uint8", "bfloat16")
    },
    "ao int8": "torchao-Int8Tensor",
    "ao int8 groups": "torchao-Int8Tensor",
    "ao float8": "torchao-Float8Tensor",
    "ao intx": "torchao-IntxUnpackedToInt8Tensor",
    "ao intx zeros": "torchao-IntxUnpackedToInt8Tensor",
}


def test_all_that_was_written_is_tested(written: Path) -> None:
    assert {path.name for path in written.iterdir()} == CASES.keys()


@pytest.mark.parametrize("case", CASES)
def test_numbers_are_the_librarys(written: Path, case: str) -> None:
    with (
        tensorkeep.open(written / case) as stored,
        tensorkeep.open(written / case / "numbers.safetensors") as expected,
    ):
        found = layouts(stored)
        (name,) = expected
        plain = dequantize(stored, expected[name].dtype)
        numbers = plain[name].load()

        assert found.tensors[name].layout == CASES[case]
        assert found.findings == ()
        assert plain.keys() == {name, "model.norm.weight", "lm_head.weight"}
        assert bits(numbers) == bits(expected[name].load())
        for index in indices(plain[name].shape):
            assert np.array_equal(plain[name][index], numbers[index]), index
        assert plain.plan({name: indices(plain[name].shape)[0]}).nbytes > 0


def bits(array: Any) -> tuple[Any, bytes]:
    return array.shape, array.tobytes()


def indices(shape: tuple[int, ...]) -> list[Any]:
    last = (slice(3, 11), slice(1, None, 3))
    whole = last if len(shape) == 2 else (1, *last)
    return [whole, -1, [1, 0, 1], (slice(None, None, -1), ..., 5), (slice(0, 0),)]


@pytest.mark.parametrize("framework", ["torch", "jax"])
def test_any_library_gets_the_numbers(written: Path, framework: Any) -> None:
    with tensorkeep.open(written / "awq", framework=framework) as stored, tensorkeep.open(written / "awq") as other:
        name = "model.layers.0.mlp.up_proj.weight"
        tensor = dequantize(stored, "f32")[name].load()

        assert type(tensor).__module__.split(".")[0] in {framework, "jaxlib"}
        assert np.array_equal(np.asarray(tensor), dequantize(other, "f32")[name].load())


def test_convert_load_and_export_give_numbers(written: Path, tmp_path: Path) -> None:
    name = "model.layers.0.mlp.up_proj.weight"
    expected = tensorkeep.load(written / "nvfp4" / "numbers.safetensors")[name]

    conversion = tensorkeep.convert(written / "nvfp4", tmp_path / "plain", dequantize="bf16")
    tensorkeep.export(written / "nvfp4", tmp_path / "plain.npz", dequantize="f32")

    assert conversion.n_tensors == 3
    assert tensorkeep.verify(tmp_path / "plain")
    assert np.array_equal(tensorkeep.load(tmp_path / "plain")[name], expected)
    assert np.array_equal(tensorkeep.load(written / "nvfp4", dequantize="bf16")[name], expected)
    assert tensorkeep.load(tmp_path / "plain.npz")[name].shape == expected.shape


def test_a_damaged_part_is_found_before_it_gets_a_new_digest(written: Path, tmp_path: Path) -> None:
    tensorkeep.save_checkpoint(tensorkeep.load(written / "awq"), tmp_path / "kept")
    shutil.copy(written / "awq" / "config.json", tmp_path / "kept")
    (file,) = (tmp_path / "kept").glob("*.safetensors")
    with tensorkeep.open(file) as kept:
        start = kept["model.layers.0.mlp.up_proj.scales"].span.start
    data = bytearray(file.read_bytes())
    data[start] ^= 1
    file.write_bytes(data)

    with pytest.raises(tensorkeep.errors.IntegrityError, match=r"up_proj\.scales"):
        tensorkeep.convert(tmp_path / "kept", tmp_path / "plain", dequantize="bf16")


def test_groups_that_do_not_exist_are_refused(written: Path, tmp_path: Path) -> None:
    tensors = tensorkeep.load(written / "gptq 4 bits, act order")
    tensors["model.layers.0.mlp.up_proj.g_idx"][7] = 2**30
    tensorkeep.save(tensors, tmp_path / "model.safetensors")
    shutil.copy(written / "gptq 4 bits, act order" / "config.json", tmp_path)

    with (
        tensorkeep.open(tmp_path / "model.safetensors") as stored,
        pytest.raises(FormatError, match=r"up_proj\.weight` has columns in groups that do not exist"),
    ):
        dequantize(stored).load()


def test_a_large_tensor_is_streamed(tmp_path: Path) -> None:
    n_out, n_in = 8192, 4096
    tensors = {"w.weight": np.zeros((n_out, n_in), np.int8), "w.weight_scale": np.ones((n_out, 1), np.float32)}
    tensorkeep.save(tensors, tmp_path / "model.safetensors")

    def converted() -> int:
        source, destination = tmp_path / "model.safetensors", tmp_path / "plain.safetensors"
        return tensorkeep.convert(source, destination, dequantize="f32", check=False).nbytes

    nbytes, peak = with_peak(converted)

    assert nbytes == 4 * n_out * n_in
    assert peak < 100e6, "at most a few pieces are in memory, not 134 MB"


@pytest.mark.parametrize(("shape", "block"), [((1, 2**21), 64), ((2, 3, 2**17), 4096), ((7, 11, 22), 64)])
def test_runs_of_bitsandbytes_are_cut_wherever_they_are(tmp_path: Path, shape: tuple[int, ...], block: int) -> None:
    with tensorkeep.open(four_bits(tmp_path / "x", shape, block)) as opened:
        lazy = dequantize(opened, "f32")["w"]
        whole = lazy.load()
        for index in (np.s_[..., 5:9], np.s_[0], np.s_[-1, ..., 3], np.s_[..., ::3]):
            assert np.array_equal(lazy[index], whole[index])
        packed = opened["w"][...].reshape(-1)
        places = np.stack([packed >> 4, packed & 15], axis=-1).reshape(-1)
        magnitudes = np.repeat(opened["w.absmax"][...], block)[: whole.size]
        assert np.array_equal(whole.reshape(-1)[places == 15], magnitudes[places == 15])  # the largest is 1


@pytest.mark.parametrize("block", [2**17, 2**60])
def test_blocks_of_impossible_sizes_are_refused(tmp_path: Path, block: int) -> None:
    with (
        tensorkeep.open(four_bits(tmp_path / "x", (8, 64), block)) as opened,
        pytest.raises(FormatError, match="no possible size"),
    ):
        dequantize(opened)


def four_bits(path: Path, shape: tuple[int, ...], block: int) -> Path:
    n = int(np.prod(shape))
    state = json.dumps({"blocksize": block, "shape": shape, "dtype": "bfloat16", "quant_type": "nf4"}).encode()
    tensors = {
        "w": np.random.default_rng(0).integers(0, 256, (n // 2, 1), dtype=np.uint8),
        "w.absmax": np.random.default_rng(1).random(-(-n // block)).astype(np.float32) + 1,
        "w.quant_state.bitsandbytes__nf4": np.frombuffer(state, np.uint8).copy(),
    }
    tensorkeep.save_checkpoint(tensors, path)
    return path

"""Statistics of tensors agree with plain NumPy, for every dtype, however a tensor is divided."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays_of

import tensorkeep
from tensorkeep.dtypes import DTYPES, DType
from tensorkeep.errors import DtypeError, TensorNotFoundError
from tensorkeep.measuring import Histogram, TensorStatistics, _measure
from tensorkeep.measuring._bins import Bins
from tests.support.formats.gguf_files import write_gguf
from tests.support.peak_memory import with_peak


def numpy_dtype(dtype: DType) -> np.dtype[Any]:
    return np.dtype(getattr(ml_dtypes, dtype.numpy, dtype.numpy))


def as_numbers(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    with np.errstate(all="ignore"):
        if array.dtype.kind == "c":
            wide = array.astype(np.complex128)
            return np.where(np.isnan(wide), np.nan, np.abs(wide)).reshape(-1)
        return array.astype(np.float64).reshape(-1)


def check(found: TensorStatistics, array: np.ndarray[Any, Any]) -> None:
    numbers = as_numbers(array)
    finite = numbers[np.isfinite(numbers)]
    assert found.problem is None
    assert found.shape == array.shape
    assert found.n_elements == array.size
    assert found.n_nan == np.isnan(numbers).sum()
    assert found.n_inf == np.isinf(numbers).sum()
    assert found.n_zeros == (finite == 0).sum()
    assert found.n_numbers == len(finite)
    if array.dtype.itemsize <= 2:
        assert found.n_distinct == len(np.unique(numbers))
    else:
        assert found.n_distinct is None
    if not len(finite):
        assert (found.min, found.max, found.mean, found.std, found.norm) == (None, None, None, None, 0)
        assert (found.histogram, found.magnitudes) == (Histogram(), Histogram())
        return
    is_exact = array.dtype.kind in "iub"
    assert found.min == (int(array.min()) if is_exact else finite.min())
    assert found.max == (int(array.max()) if is_exact else finite.max())
    with np.errstate(over="ignore", invalid="ignore"):
        scale = np.abs(finite).max()
        if scale < 1e150:
            assert found.mean == pytest.approx(finite.mean(), rel=1e-12, abs=1e-12 * scale)
            assert found.std == pytest.approx(finite.std(), rel=1e-9, abs=1e-7 * scale)
            assert found.norm == pytest.approx(np.sqrt((finite**2).sum()), rel=1e-12)
    check_histogram(found.histogram, finite, is_integer=is_exact)
    check_magnitudes(found.magnitudes, finite)


def check_histogram(found: Histogram, finite: np.ndarray[Any, Any], *, is_integer: bool) -> None:
    edges = np.array(found.edges)
    widths = {b - a for a, b in zip(found.edges, found.edges[1:], strict=False)} - {np.inf}  # beyond float64
    assert len(widths) == 1
    (width,) = widths
    assert np.frexp(width)[0] == 0.5
    assert width >= 1 or not is_integer
    assert np.array_equal(edges[1:-1], np.round(edges[1:-1] / width) * width)
    assert 1 <= len(found.counts) <= 64
    assert found.counts[0]
    assert found.counts[-1]
    places = np.searchsorted(edges, finite, side="right") - 1
    assert found.counts == tuple(np.bincount(places, minlength=len(found.counts)))


def check_magnitudes(found: Histogram, finite: np.ndarray[Any, Any]) -> None:
    others = np.abs(finite[finite != 0])
    assert sum(found.counts) == len(others)
    if not len(others):
        return
    assert all(b == 2 * a for a, b in zip(found.edges, found.edges[1:], strict=False))
    edges = np.array(found.edges)
    places = np.maximum(np.searchsorted(edges, others, side="right") - 1, 0)
    assert found.counts == tuple(np.bincount(places, minlength=len(found.counts)))


def saved(array: np.ndarray[Any, Any], path: Path) -> tensorkeep.LazyTensor:
    tensorkeep.save({"w": array}, path)
    return tensorkeep.open(path)["w"]


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: dtype.name)
@pytest.mark.parametrize("n", [0, 4, 12, 1000, 200_000])
def test_every_dtype(dtype: DType, n: int, tmp_path: Path) -> None:
    bits = np.random.default_rng(n).integers(0, 256, n * dtype.itemsize, np.uint8)
    if dtype.is_packed:
        bits %= 2**dtype.bits
    if dtype.name == "BOOL":
        bits %= 2
    array = bits.view(numpy_dtype(dtype))

    found = tensorkeep.statistics(saved(array, tmp_path / "m.safetensors"))

    assert (found.name, found.dtype) == ("w", dtype.name)
    check(found, array)


@pytest.mark.parametrize("dtype", [dtype for dtype in DTYPES if dtype.bits <= 16], ids=lambda dtype: dtype.name)
def test_every_value_of_narrow_dtypes(dtype: DType, tmp_path: Path) -> None:
    array = np.arange(2**dtype.bits).astype(f"u{dtype.itemsize}")
    array = (array % 2 if dtype.name == "BOOL" else array).view(numpy_dtype(dtype))

    check(tensorkeep.statistics(saved(array, tmp_path / "m.safetensors")), array)


@settings(max_examples=200, deadline=None)
@given(
    made=st.sampled_from([
        "float64",
        "float32",
        "float16",
        "bfloat16",
        "int64",
        "uint64",
        "int32",
        "complex64",
    ]).flatmap(
        lambda name: (
            st.tuples(st.lists(st.floats(width=32), max_size=40), st.just(name))
            if name == "bfloat16"
            else st.tuples(arrays_of.arrays(name, st.integers(0, 40)), st.just(name))
        )
    )
)
def test_any_numbers(made: tuple[Any, str], tmp_path_factory: pytest.TempPathFactory) -> None:
    numbers, name = made
    with np.errstate(all="ignore"):
        array = np.asarray(numbers, np.float32 if name == "bfloat16" else None)
        array = array.astype(getattr(ml_dtypes, name, name))
    path = tmp_path_factory.mktemp("any") / "m.safetensors"

    check(tensorkeep.statistics(saved(array, path)), array)


@pytest.mark.parametrize("name", ["float32", "float64", "int64", "float16", "uint8", "float4_e2m1fn"])
def test_a_tensor_in_parts_is_measured_as_one(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    generator = np.random.default_rng(1)
    scales = np.repeat(np.exp2(generator.integers(-30, 3, 10)), 200_000)  # ranges differ from part to part
    array = (generator.standard_normal(2_000_000) * scales).astype(getattr(ml_dtypes, name, name))
    if array.dtype.kind == "f" and array.itemsize > 1:
        array[700_000] = np.nan
    lazy = saved(array.reshape(2, -1), tmp_path / "m.safetensors")
    whole = tensorkeep.statistics(lazy)
    monkeypatch.setattr(_measure, "_SMALL_NBYTES", 1000)
    monkeypatch.setattr(_measure, "_RUN_NBYTES", 100_000)
    monkeypatch.setattr(_measure, "_PART_NBYTES", 300_000)

    parts = [tensorkeep.statistics(lazy)]
    for n_threads in (1, 3):
        monkeypatch.setattr(_measure, "_MAX_THREADS", n_threads)
        parts.append(tensorkeep.statistics(lazy))

    check(parts[0], array.reshape(2, -1))
    assert parts[0] == parts[1] == parts[2]
    assert (parts[0].histogram, parts[0].magnitudes) == (whole.histogram, whole.magnitudes)


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e9])
def test_parts_of_few_numbers_are_counted_as_one(scale: float) -> None:
    numbers = np.random.default_rng(0).standard_normal(300) * scale
    numbers[::7] = 0  # 15 of the first 100
    whole, few, others = Bins(), Bins(), Bins()
    whole.add(numbers, np.abs(numbers).max())
    for bins, part in ((few, numbers[:100] / 64), (others, numbers[100:]), (others, numbers[:100])):
        bins.add(part, np.abs(part).max())
    reference = Bins()
    reference.add(np.concatenate([numbers, numbers[:100] / 64]), np.abs(numbers).max())

    few.merge(others)

    n_zeros = int((numbers == 0).sum())
    assert others.histogram(of_integers=False) == whole.histogram(of_integers=False)
    assert others.magnitudes(n_zeros) == whole.magnitudes(n_zeros)
    assert few.histogram(of_integers=False) == reference.histogram(of_integers=False)
    assert few.magnitudes(n_zeros + 15) == reference.magnitudes(n_zeros + 15)


def test_a_file_a_path_and_a_view(tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    tensors = {f"layers.{place}.w": np.full((2, 3), place, np.float32) for place in range(2000)}
    tensorkeep.save(tensors, path)

    with tensorkeep.open(path, framework="torch") as opened:
        of_file = tensorkeep.statistics(opened)
        of_view = tensorkeep.statistics(opened.select("*.1.w", "*.7.w").cast("bf16"))
        assert list(of_file) == list(opened)
    assert tensorkeep.statistics(str(path)) == of_file
    assert tensorkeep.statistics(path, names="*.7.w") == {"layers.7.w": of_file["layers.7.w"]}
    assert all(of_file[name].mean == array[0, 0] for name, array in tensors.items())
    assert {name: (each.dtype, each.max) for name, each in of_view.items()} == {
        "layers.1.w": ("BF16", 1),
        "layers.7.w": ("BF16", 7),
    }
    with pytest.raises(TensorNotFoundError, match="nothing is chosen"):
        tensorkeep.statistics(path, names=["other"])


def test_strided_complex_and_expanded_tensors_of_a_pickle(tmp_path: Path) -> None:
    base = torch.randn(600, 700)
    tensors = {
        "transposed": base.T,
        "conjugate": torch.randn(50, dtype=torch.complex128).conj(),
        "expanded": torch.ones(1).expand(1000, 1000),
        "half": torch.randn(4, dtype=torch.complex32),
    }
    torch.save(tensors, tmp_path / "m.pt")

    found = tensorkeep.statistics(tmp_path / "m.pt")

    for name in ("transposed", "conjugate", "expanded"):
        check(found[name], tensors[name].resolve_conj().numpy())
    assert "C32" in str(found["half"].problem)
    assert (found["half"].n_numbers, found["half"].mean) == (0, None)
    with tensorkeep.open(tmp_path / "m.pt") as opened, pytest.raises(DtypeError, match="C32"):
        tensorkeep.statistics(opened["half"])


def test_quantized_tensors_are_measured_as_numbers(tmp_path: Path) -> None:
    numbers = np.random.default_rng(3).standard_normal((64, 256)).astype(np.float32)
    write_gguf(tmp_path / "m.gguf", {"w": numbers})
    tensorkeep.export(tmp_path / "m.gguf", tmp_path / "q.gguf", cast="q8_0")

    with tensorkeep.open(tmp_path / "q.gguf") as opened:
        found = tensorkeep.statistics(opened["w"])
        assert found.dtype == "Q8_0"
        assert found.n_distinct is None
        check(
            TensorStatistics(**{name: getattr(found, name) for name in found.__struct_fields__}),
            opened["w"].dequantize("f32").load(),
        )


def test_progress_and_cancelling(tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    tensorkeep.save({"a": np.zeros(20_000_000, np.uint8), "b": np.ones(10)}, path)
    seen: list[tuple[int, int]] = []

    tensorkeep.statistics(path, progress=lambda done, total: seen.append((done, total)))

    assert [done for done, _ in seen] == sorted(done for done, _ in seen)
    assert seen[-1] == (20_000_080, 20_000_080)
    assert len(seen) >= 5

    class Cancelled(Exception):
        pass

    def cancel(done: int, total: int) -> None:
        raise Cancelled

    n_before = threading.active_count()
    with pytest.raises(Cancelled):
        tensorkeep.statistics(path, progress=cancel)
    assert threading.active_count() == n_before


@pytest.mark.parametrize("name", ["bfloat16", "float32", "complex64"])
def test_memory_is_bounded(name: str, tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    tensorkeep.save({f"{n}": np.ones(20_000_000, getattr(ml_dtypes, name, name)) for n in range(4)}, path)

    found, peak = with_peak(tensorkeep.statistics, path)

    assert {each.mean for each in found.values()} == {1.0}
    assert peak < 100e6
    assert os.path.getsize(path) > 1.5 * peak

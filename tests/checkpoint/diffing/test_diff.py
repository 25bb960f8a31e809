"""What sets two checkpoints apart, against the same computed in the plainest way with whole arrays."""

from __future__ import annotations

import json
import math
import subprocess
import sys
import warnings
from collections.abc import Iterable
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import tensorkeep
from tensorkeep.checkpoint.diffing import _numbers as _compare
from tensorkeep.checkpoint.diffing._diff import Diff, diff
from tensorkeep.dtypes import BY_NAME, DTYPES
from tensorkeep.tensors import serialize_tensors
from tests.support.soak import rounds

NAMES = [dtype.name for dtype in DTYPES]


def opened(tensors: dict, **options):
    return tensorkeep.open(tensorkeep_bytes(tensors), **options)


def tensorkeep_bytes(tensors: dict) -> bytes:
    from tensorkeep.arrays import tensor_to_write

    return serialize_tensors({name: tensor_to_write(tensor, name) for name, tensor in tensors.items()})


def numpy_type(name: str) -> np.dtype:
    row = BY_NAME[name]
    return np.dtype(row.numpy if row.is_in_numpy else getattr(ml_dtypes, row.numpy))


def from_codes(name: str, codes: np.ndarray) -> np.ndarray:
    """Make an array of any dtype from arbitrary bits."""
    row = BY_NAME[name]
    if name == "BOOL":
        return (codes & 1).astype(bool)
    return (codes & (2 ** min(row.bits, 64) - 1)).astype(row.bits_name).view(numpy_type(name))


def plainly(a: np.ndarray, b: np.ndarray) -> dict[str, float]:
    """Compare two arrays one element after another, with Python's numbers."""

    def number(value):
        if value.dtype.kind == "c":
            return complex(value)
        return int(value) if value.dtype.kind in "iub" else float(value)

    def is_nan(value) -> bool:
        return value != value

    same = a.dtype == b.dtype
    n_different, gaps, shares = 0, [], []
    for left, right in zip(a.reshape(-1), b.reshape(-1), strict=True):
        x, y = number(left), number(right)
        if not same:
            wide = complex if "c" in {a.dtype.kind, b.dtype.kind} else float
            x, y = wide(x), wide(y)
        if x == y or (is_nan(x) and is_nan(y)):
            continue
        n_different += 1
        gap = float(abs(x - y))
        if not is_nan(gap):
            gaps.append(gap)
            shares.append(math.inf if math.isinf(gap) else gap / max(float(abs(x)), float(abs(y))))
    return {
        "n_different": n_different,
        "max_abs": max(gaps, default=math.nan if n_different else 0.0),
        "max_rel": max(shares, default=math.nan if n_different else 0.0),
        "n_nan_a": sum(is_nan(number(value)) for value in a.reshape(-1)),
        "n_nan_b": sum(is_nan(number(value)) for value in b.reshape(-1)),
        "n_inf_a": sum(is_inf(number(value)) for value in a.reshape(-1)),
        "n_inf_b": sum(is_inf(number(value)) for value in b.reshape(-1)),
        "norm": norm(gap for gap in gaps if math.isfinite(gap)),
    }


def norm(numbers: Iterable[float]) -> float:
    with np.errstate(over="ignore"):
        return math.sqrt(np.square(np.array(list(numbers), np.float64)).sum())


def is_inf(value) -> bool:
    parts = (value.real, value.imag) if isinstance(value, complex) else (value,)
    return any(map(math.isinf, map(float, parts))) and not any(map(math.isnan, map(float, parts)))


def assert_found(found: Diff, a: np.ndarray, b: np.ndarray) -> None:
    """Check the result for two files that hold one tensor `x` of the same shape."""
    if a.dtype == b.dtype and a.tobytes() == b.tobytes():
        assert found == Diff((), (), (), 1, found.n_unread)
        assert found.is_equal
        return
    (changed,) = found.changed
    assert not found.is_equal
    for key, value in plainly(a, b).items():
        assert getattr(changed, key) == pytest.approx(value, rel=1e-12, nan_ok=True), key
    assert changed.n_elements == a.size


def codes_of(draw, shape) -> np.ndarray:
    size = math.prod(shape)
    pool = draw(st.lists(st.integers(0, 2**64 - 1), min_size=1, max_size=12))
    picks = draw(st.lists(st.sampled_from(pool), min_size=size, max_size=size))
    return np.array(picks, np.uint64).reshape(shape)


@st.composite
def pairs(draw):
    """Two arrays of one shape, of any two dtypes, mostly equal bits."""
    name_a = draw(st.sampled_from(NAMES))
    name_b = draw(st.one_of(st.just(name_a), st.sampled_from(NAMES)))
    shape = draw(st.sampled_from([(), (0,), (8,), (24,), (3, 8), (2, 3, 4)]))
    if not shape and (BY_NAME[name_a].is_packed or BY_NAME[name_b].is_packed):
        shape = (4,)
    codes = codes_of(draw, shape)
    others = codes.copy()
    for place in draw(st.lists(st.integers(0, max(0, codes.size - 1)), max_size=4 if codes.size else 0)):
        others.reshape(-1)[place] = draw(st.integers(0, 2**64 - 1))
    return from_codes(name_a, codes), from_codes(name_b, others)


@settings(max_examples=rounds(100, 4_000))
@given(pairs())
def test_as_computed_with_whole_arrays(pair):
    a, b = pair

    assert_found(diff(opened({"x": a}), opened({"x": b})), a, b)


@pytest.mark.parametrize("name", NAMES)
def test_every_dtype_over_many_pieces(name, monkeypatch):
    monkeypatch.setattr(_compare, "_N_AT_ONCE", 32)
    random = np.random.default_rng(0)
    codes = random.integers(0, 2**63, 1000, np.uint64)
    others = np.where(random.random(1000) < 0.1, random.integers(0, 2**63, 1000, np.uint64), codes)
    a, b = from_codes(name, codes), from_codes(name, others)

    assert_found(diff(opened({"x": a}), opened({"x": b})), a, b)
    assert_found(diff(opened({"x": a}), opened({"x": a.copy()})), a, a)


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        ([1.0, 2.0], [1.0, 3.0], {"n_different": 1, "max_abs": 1.0, "max_rel": 1 / 3}),
        ([math.nan, 1.0], [math.nan, 2.0], {"n_different": 1, "max_abs": 1.0, "n_nan_a": 1, "n_nan_b": 1}),
        ([math.nan, 1.0], [0.0, 1.0], {"n_different": 1, "max_abs": math.nan, "n_nan_a": 1, "n_nan_b": 0}),
        ([math.inf, 1.0], [math.inf, 2.0], {"n_different": 1, "max_abs": 1.0, "n_inf_a": 1, "n_inf_b": 1}),
        ([math.inf, 1.0], [-math.inf, 1.0], {"n_different": 1, "max_abs": math.inf, "max_rel": math.inf}),
        ([0.0, 1.0], [-0.0, 1.0], {"n_different": 0, "max_abs": 0.0, "max_rel": 0.0}),
        ([-1.0, 0.0], [1.0, 0.0], {"n_different": 1, "max_abs": 2.0, "max_rel": 2.0}),
    ],
)
def test_numbers_that_are_not_finite_and_zeros(a, b, expected):
    (changed,) = diff(opened({"x": np.array(a)}), opened({"x": np.array(b)})).changed

    for key, value in expected.items():
        assert getattr(changed, key) == pytest.approx(value, nan_ok=True)
    assert changed.is_bitwise_equal is False


def test_integers_are_compared_exactly():
    a, b = np.array([2**63 - 1, -(2**63)]), np.array([2**63 - 2, 2**63 - 1])
    (changed,) = diff(opened({"x": a}), opened({"x": b})).changed

    assert changed.n_different == 2
    assert changed.max_abs == float(2**64 - 1)


def test_names_dtypes_and_shapes():
    a = opened({"same": np.ones(3), "gone": np.ones(2), "dtype": np.ones(4, np.float32), "shape": np.ones((2, 3))})
    b = opened({"new": np.ones(2), "dtype": np.ones(4, np.float16), "shape": np.ones((3, 2)), "same": np.ones(3)})

    for values in (True, False):
        found = diff(a, b, values=values)
        assert (found.only_in_a, found.only_in_b, found.n_equal) == (("gone",), ("new",), 1)
        changed = {tensor.name: tensor for tensor in found.changed}
        assert set(changed) == {"dtype", "shape"}
        assert (changed["dtype"].dtype_a, changed["dtype"].dtype_b) == ("F32", "F16")
        assert (changed["shape"].shape_a, changed["shape"].shape_b) == ((2, 3), (3, 2))
        assert changed["dtype"].n_different == (0 if values else None)
        assert changed["shape"].n_different is None


def test_without_values_nothing_is_read():
    a, b = opened({"x": np.zeros(3)}), opened({"x": np.ones(3)})

    assert diff(a, b, values=False).is_equal
    assert not diff(a, b).is_equal


def test_equal_digests_spare_the_reading(tmp_path):
    tensors = {"x": np.arange(100_000), "y": np.arange(5)}
    tensorkeep.save(tensors, tmp_path / "a.safetensors")
    tensorkeep.save({**tensors, "y": np.arange(5) + 1}, tmp_path / "b.safetensors")
    with open(tmp_path / "b.safetensors", "r+b") as file:  # damage that the digest does not know of
        start = tensorkeep.open(tmp_path / "b.safetensors")["x"].span.start
        file.seek(start)
        file.write(b"\xff")
    a, b = tensorkeep.open(tmp_path / "a.safetensors"), tensorkeep.open(tmp_path / "b.safetensors")
    seen: list[tuple[int, int]] = []

    found = diff(a, b, progress=lambda *step: seen.append(step))

    assert [(tensor.name, tensor.n_different) for tensor in found.changed] == [("y", 5)]
    assert found.n_equal == 1
    assert seen[-1] == (40, 40), "bytes of y only"


def test_the_same_bytes_in_another_shape_are_seen_by_their_digests(tmp_path):
    tensorkeep.save({"x": np.arange(6)}, tmp_path / "a.safetensors")
    tensorkeep.save({"x": np.arange(6).reshape(2, 3)}, tmp_path / "b.safetensors")
    tensorkeep.save({"x": np.ones((2, 3), np.int64)}, tmp_path / "c.safetensors")
    a, b, c = (tensorkeep.open(tmp_path / f"{name}.safetensors") for name in "abc")

    assert diff(a, b).changed[0].is_bitwise_equal is True
    assert diff(a, c).changed[0].is_bitwise_equal is False
    assert diff(opened({"x": np.arange(6)}), b).changed[0].is_bitwise_equal is None


def test_dtypes_that_nobody_knows_are_compared_by_bytes():
    def file(data: bytes, dtype: str = "F3_NEW"):
        header = json.dumps({"x": {"dtype": dtype, "shape": [4], "data_offsets": [0, len(data)]}}).encode()
        return tensorkeep.open(len(header).to_bytes(8, "little") + header + data)

    assert diff(file(b"abcd"), file(b"abcd")).is_equal
    (changed,) = diff(file(b"abcd"), file(b"abce")).changed
    assert (changed.is_bitwise_equal, changed.n_different, changed.max_abs) == (False, None, None)
    assert diff(file(b"abcd"), file(b"abcde")).changed[0].is_bitwise_equal is False
    (changed,) = diff(file(b"abcd"), file(b"abcd", "U8")).changed
    assert (changed.is_bitwise_equal, changed.n_different) == (None, None)


def test_how_tensors_are_spread_over_files_does_not_matter(tmp_path):
    tensors = {f"layer.{place}": np.random.default_rng(place).random((30, 40)) for place in range(8)}
    tensorkeep.save_checkpoint(tensors, tmp_path / "shards", max_shard_size="20KB")
    tensorkeep.save_checkpoint(tensors, tmp_path / "split", max_shard_size="5KB", split_large=True)
    tensorkeep.save(tensors, tmp_path / "one.safetensors", digests=False)
    shards, split = tensorkeep.open(tmp_path / "shards"), tensorkeep.open(tmp_path / "split")
    one = tensorkeep.open(tmp_path / "one.safetensors")

    for a in (shards, split, one):
        for b in (shards, split, one):
            assert diff(a, b).is_equal
            assert diff(a, b).n_equal == 8
    tensors["layer.3"][29, 39] += 0.5
    tensorkeep.save(tensors, tmp_path / "one.safetensors", digests=False)
    found = diff(split, tensorkeep.open(tmp_path / "one.safetensors"))
    assert [(each.name, each.n_different) for each in found.changed] == [("layer.3", 1)]
    assert found.changed[0].max_abs == pytest.approx(0.5)


@pytest.mark.parametrize("framework", ["numpy", "torch"])
def test_views_are_compared_as_they_read(framework):
    tensors = {"x": np.random.default_rng(0).random((70, 90)).astype(np.float32)}
    rounded = {"x": tensors["x"].astype(ml_dtypes.bfloat16)}
    a, b = opened(tensors, framework=framework), opened(rounded, framework=framework)

    assert not diff(a, b).is_equal
    assert diff(a.cast("bf16"), b).is_equal
    assert diff(a.cast("bf16").rename({"x": "y"}), b.rename({"x": "y"})).is_equal
    (changed,) = diff(a.cast("bf16"), a).changed
    expected = np.abs(rounded["x"].astype(np.float64) - tensors["x"])
    assert changed.max_abs == expected.max()
    assert changed.n_different == np.count_nonzero(expected)


def test_torch_dtypes_that_numpy_lacks():
    a = torch.randn(1000).to(torch.float8_e5m2)
    b = a.clone()
    b[7] = 3.0
    (changed,) = diff(opened({"x": a}), opened({"x": b})).changed

    assert changed.n_different == 1
    assert changed.max_abs == abs(float(a[7]) - 3.0)


def test_progress_ends_with_all_bytes_and_may_interrupt(tmp_path):
    tensors = {f"x{place}": np.zeros(2**20, np.uint8) for place in range(8)}
    tensorkeep.save(tensors, tmp_path / "a.safetensors", digests=False)
    tensorkeep.save({**tensors, "x3": np.ones(2**20, np.uint8)}, tmp_path / "b.safetensors", digests=False)
    a, b = tensorkeep.open(tmp_path / "a.safetensors"), tensorkeep.open(tmp_path / "b.safetensors")
    seen: list[tuple[int, int]] = []

    diff(a, b, progress=lambda *step: seen.append(step))

    assert seen == sorted(seen)
    assert seen[-1] == (2**23, 2**23)

    def interrupt(*_):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        diff(a, b, progress=interrupt)


def test_no_warnings_of_numpy_reach_the_user():
    values = np.array([math.inf, -math.inf, math.nan, 0.0, 1e308, -1e308])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = diff(opened({"x": values}), opened({"x": values[::-1].copy()}))
        narrow = diff(opened({"x": values}), opened({"x": np.ones(6, np.float16)}))

    assert found.changed[0].n_different == 6
    assert narrow.changed[0].max_abs == math.inf


MEASURE = """
import sys, threading, tensorkeep
from tensorkeep.checkpoint.diffing._diff import diff
def status(key):
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith(key)) // 1024
a, b = map(tensorkeep.open, sys.argv[1:])
diff(a.select("small"), b.select("small"))
open("/proc/self/clear_refs", "w").write("5")
before = status("VmRSS")
found = diff(a, b)
print(status("VmHWM") - before, found.changed[0].n_different, found.changed[0].max_abs)
"""


@pytest.mark.skipif(
    not Path("/proc/self/clear_refs").exists(), reason="peaks are read and reset the way Linux has it"
)
def test_memory_stays_bounded_however_large_tensors_are(tmp_path):
    n_elements = 2**27  # a sparse file of 512 MiB, most of which is nowhere
    header = json.dumps({
        "small": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]},
        "large": {"dtype": "F32", "shape": [n_elements], "data_offsets": [8, 8 + 4 * n_elements]},
    }).encode()
    for name, value in (("a", 1.0), ("b", 3.0)):
        with open(tmp_path / name, "wb") as file:
            file.write(len(header).to_bytes(8, "little") + header)
            file.write(np.array([value, 0], np.float32).tobytes())
            file.truncate(8 + len(header) + 8 + 4 * n_elements)
            file.seek(-4, 2)
            file.write(np.array([value], np.float32).tobytes())

    done = subprocess.run(
        [sys.executable, "-c", MEASURE, str(tmp_path / "a"), str(tmp_path / "b")],
        capture_output=True,
        text=True,
        check=True,
    )

    peak, n_different, max_abs = done.stdout.split()
    assert (int(n_different), float(max_abs)) == (1, 2.0)
    assert int(peak) < 160, "a mapped window of each file, 64 MiB, and a few pieces"


@pytest.mark.parametrize("order", ["C", "F", ">"])
def test_complex128_is_compared_however_it_is_stored(tmp_path: Path, order: str) -> None:
    a = np.arange(12).reshape(3, 4) * (1 + 2j)
    b = a.copy()
    b[1, 2] += 3 - 4j
    for name, array in {"a": a, "b": b}.items():
        other = array.astype(">c16") if order == ">" else np.asarray(array, order=order)
        np.savez(tmp_path / f"{name}.npz", plain=array, other=other)

    with tensorkeep.open(tmp_path / "a.npz") as file_a, tensorkeep.open(tmp_path / "b.npz") as file_b:
        plain, other = file_a["plain"], file_b["other"]
        assert _compare.have_equal_bytes(file_b["plain"], other, lambda _: None)
        assert not _compare.have_equal_bytes(plain, other, lambda _: None)
    found = tensorkeep.diff(tmp_path / "a.npz", tmp_path / "b.npz")
    assert {each.name: (each.numbers.n_different, each.numbers.max_abs) for each in found.changed} == {
        "other": (1, 5.0),
        "plain": (1, 5.0),
    }


def test_complex_halves_are_compared_as_numbers(tmp_path: Path) -> None:
    halves = torch.arange(48, dtype=torch.float16).reshape(4, 6, 2)
    changed = halves.clone()
    changed[1, 2] += torch.tensor([3, -4])
    for name, pairs in {"a": halves, "b": changed}.items():
        array = torch.view_as_complex(pairs)
        torch.save({"whole": array, "strided": array.t(), "part": array[:1, ::2]}, tmp_path / f"{name}.pt")

    found = tensorkeep.diff(tmp_path / "a.pt", tmp_path / "b.pt")

    assert found.n_equal == 1
    changes = {each.name: each.numbers for each in found.changed}
    assert {name: (change.n_different, change.max_abs) for name, change in changes.items()} == {
        "whole": (1, 5.0),
        "strided": (1, 5.0),
    }

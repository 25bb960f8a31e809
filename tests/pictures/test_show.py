"""`tensorkeep.show`: pictures of tensors and checkpoints, small and harmless."""

from __future__ import annotations

import base64
import io
import re
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

import tensorkeep
from tensorkeep.errors import DtypeError
from tensorkeep.measuring import Histogram
from tensorkeep.pictures import show
from tensorkeep.pictures._histogram import histogram_svg
from tensorkeep.pictures._squares import Box, divided
from tensorkeep.pictures._treemap import treemap_svg
from tensorkeep.sampling import _reading, plane_of, sample
from tests.markup.test_notebooks import HOSTILE
from tests.support.formats.gguf_files import write_gguf
from tests.support.notebooks import texts_of


def opened(tmp_path: Path, **arrays: Any) -> tensorkeep.TensorFile:
    tensorkeep.save(arrays, tmp_path / "m.safetensors")
    return tensorkeep.open(tmp_path / "m.safetensors")


def pixels(html: str) -> Any:
    data = re.search(r"data:image/png;base64,([^\"]+)", html)
    assert data
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(data[1]))).convert("RGB"))


def test_a_tensor(tmp_path: Path) -> None:
    matrix = np.zeros((4, 5), np.float32)
    matrix[0] = [np.nan, np.inf, -1, 0, 1]

    picture = show(opened(tmp_path, w=matrix)["w"])

    shown = texts_of(picture._repr_html_())
    assert {"w", "⚠ 1 NaN, 1 Inf", "values", "magnitudes, by powers of two", "[:, :]"} <= set(shown)
    assert str(picture).splitlines()[0] == "'w': F32, [4, 5], 20 elements"
    row = pixels(picture.html)[0].tolist()
    assert row[:2] == [[255, 0, 255], [255, 212, 0]]
    assert row[2][2] > row[2][0]  # blue
    assert row[3] == [247, 247, 247]
    assert row[4][0] > row[4][2]  # red
    assert texts_of(show(tensorkeep.statistics(tmp_path / "m.safetensors")["w"]).html)


@pytest.mark.parametrize("shape", [(), (1,), (1000,), (0, 3), (2, 300, 400), (3, 1, 2, 5), (100_000, 3)])
@pytest.mark.parametrize("dtype", [np.float64, np.int8, np.bool_, np.complex64])
def test_any_shape(shape: tuple[int, ...], dtype: Any, tmp_path: Path) -> None:
    array = np.random.default_rng(0).integers(-100, 100, shape).astype(dtype)
    tensorkeep.numpy.save_file({"w": array}, tmp_path / "m.safetensors")

    picture = show(tensorkeep.open(tmp_path / "m.safetensors")["w"])

    assert texts_of(picture.html)[0] == "w"
    if array.ndim and array.size:
        rows, columns = pixels(picture.html).shape[:2]
        assert max(rows, columns) <= 128


def test_a_sample_reads_little(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    array = np.arange(256 * 100_000).astype(np.uint8).reshape(256, 100_000)
    lazy = opened(tmp_path, w=array)["w"]
    assert np.array_equal(sample([lazy], plane_of(lazy.shape), 128, 128).matrix, array[::2, ::782])
    assert "[::2, ::782]" in texts_of(show(lazy).html)

    for most, expected in ((2_000_000, array[::32, ::782]), (200_000, array[:128, :128])):
        monkeypatch.setattr(_reading, "_MAX_NBYTES", most)
        assert np.array_equal(sample([lazy], plane_of(lazy.shape), 128, 128).matrix, expected)
    assert "[:128, :128]" in texts_of(show(lazy).html)


def test_quantized_torch_and_unknown_tensors(tmp_path: Path) -> None:
    write_gguf(tmp_path / "m.gguf", {"w": np.random.default_rng(3).standard_normal((64, 256)).astype(np.float32)})
    tensorkeep.export(tmp_path / "m.gguf", tmp_path / "q.gguf", cast="q8_0")
    with tensorkeep.open(tmp_path / "q.gguf", framework="torch") as file:
        assert "[:, ::2]" in texts_of(show(file["w"]).html)
    path = tmp_path / "unknown.safetensors"
    header = b'{"w":{"dtype":"F3","shape":[2],"data_offsets":[0,1]}}'
    path.write_bytes(len(header).to_bytes(8, "little") + header + b"\0")
    with tensorkeep.open(path) as file, pytest.raises(DtypeError, match="F3"):
        show(file["w"])


def test_a_checkpoint_with_hostile_names(tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    tensorkeep.save({f"{name}.{place}": np.ones(9) for name in HOSTILE for place in range(3)}, path)

    for picture in (show(path), show(tensorkeep.open(path)), show(dict(tensorkeep.open(path)))):
        assert texts_of(picture.html)
    assert str(show(path)).endswith("21 tensors, 1.51 kB")
    show(path).save(tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert page.startswith("<!doctype html>")
    assert "<script" not in page


def test_100_000_tensors_are_a_small_picture_at_once(tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    names = [f"layers.{n // 100}.block/{n % 100}" for n in range(100_000)]
    tensorkeep.save({name: np.ones(1, np.float32) for name in names}, path)
    with tensorkeep.open(path) as file:
        start = time.perf_counter()
        picture = show(file)
        seconds = time.perf_counter() - start

    assert "layers.0 … " in " ".join(texts_of(picture.html))
    assert len(picture.html) < 100_000
    assert seconds < 10


@given(st.dictionaries(st.text(), st.integers(0, 2**50), max_size=60))
def test_a_treemap_shows_all_bytes(sizes: dict[str, int]) -> None:
    svg = treemap_svg(sizes)

    texts_of(svg)
    assert svg.count("<rect") <= 60


@given(st.lists(st.floats(1e-3, 1e9), max_size=50))
def test_a_box_is_divided_by_size(sizes: list[float]) -> None:
    sizes.sort(reverse=True)
    whole = Box(0, 0, 720, 300)

    boxes = list(divided(sizes, whole))

    assert len(boxes) == len(sizes)
    for size, box in zip(sizes, boxes, strict=True):
        assert box.width * box.height == pytest.approx(size / sum(sizes) * 720 * 300, rel=1e-3, abs=0.01)
        assert box.x >= -1e-6
        assert box.y >= -1e-6
        assert box.x + box.width <= 720.01
        assert box.y + box.height <= 300.01


@given(st.lists(st.integers(0, 10**15), max_size=300))
def test_any_histogram(counts: list[int]) -> None:
    edges = tuple(float(place) for place in range(len(counts) + 1)) if counts else ()

    svg = histogram_svg("values", Histogram(edges, tuple(counts)))

    texts_of(svg)
    assert svg.count("<rect") <= 64
    assert "nan" not in svg
    assert histogram_svg("F64", Histogram((0.5, 1.0, float("inf")), (1, 2)))

"""A tensor whose tiles lie in several files, read as one."""

from __future__ import annotations

import pickle
import re
from collections.abc import Iterable
from functools import partial
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given

import tensorkeep
from tensorkeep.errors import IntegrityError, SelectionError
from tensorkeep.tensors import LazyTensor, PlacedPiece, Region, StoredTensor, TensorView, assemble
from tests.support.tensors.index_strategies import indices
from tests.support.tensors.plain_files import Known, file_of, same_bits

SHAPE = (9, 8, 4)
TILES = ((0, 3, 4, 9), (0, 4, 8), (0, 4))
ROWS = ((0, 3, 4, 9), (0, 8), (0, 4))


def tiles_of(cuts: Iterable[tuple[int, ...]]) -> list[Region]:
    ranges = product(*(pairwise(cut) for cut in cuts))
    return [Region(tuple(start for start, _ in each), tuple(stop for _, stop in each)) for each in ranges]


def placed_in(folder: Path, whole: Known, regions: Iterable[Region], backend: Any = "auto") -> list[PlacedPiece]:
    """Write a file for each region, and say what it holds."""
    placed = []
    for place, region in enumerate(regions):
        piece = Known(whole.dtype, np.ascontiguousarray(whole.array[region.index]))
        path = folder / f"{place}.safetensors"
        path.write_bytes(file_of({"first": Known.random("U8", (place,)), "piece": piece}, padding=place))
        lazy = tensorkeep.open(path, backend=backend)["piece"]
        placed.append(PlacedPiece.of(region, path.name, lazy))
    return placed


def assembled(whole: Known, placed: Iterable[PlacedPiece], framework: str = "numpy") -> LazyTensor:
    return assemble("w", whole.dtype.name, whole.array.shape, placed, path="whole", framework=framework)


WHOLE = Known.random("F16", SHAPE)
IN_ONE_FILE = tensorkeep.open(file_of({"w": WHOLE}))["w"]


@pytest.fixture(scope="module", params=["mmap", "pread"])
def tiled(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> LazyTensor:
    folder = tmp_path_factory.mktemp("tiles")
    return assembled(WHOLE, placed_in(folder, WHOLE, tiles_of(TILES), request.param))


@given(index=indices(SHAPE))
def test_it_indexes_like_the_whole(tiled: LazyTensor, index: Any) -> None:
    try:
        expected = IN_ONE_FILE[index]
    except SelectionError as error:
        with pytest.raises(SelectionError, match=f"^{re.escape(error.message)} "):
            tiled[index]
        return

    assert same_bits(tiled[index], expected)


def test_it_loads_saves_and_casts_like_the_whole(tiled: LazyTensor, tmp_path: Path) -> None:
    assert same_bits(tiled.load(), WHOLE.array)
    with np.errstate(invalid="ignore"):
        wide = WHOLE.array.astype("f4")
    assert np.array_equal(tiled.cast("f32")[2:5, ::2], wide[2:5, ::2], equal_nan=True)

    tensorkeep.save({"w": tiled, "wide": tiled.cast("f32")}, tmp_path / "whole.safetensors")

    with tensorkeep.open(tmp_path / "whole.safetensors", verify=True) as saved:
        assert same_bits(saved["w"].load(), WHOLE.array)
        assert np.array_equal(saved["wide"].load(), wide, equal_nan=True)


def test_only_the_pieces_that_are_needed_are_opened(tmp_path: Path) -> None:
    placed = placed_in(tmp_path, WHOLE, tiles_of(TILES))
    opened: list[str] = []

    def noting(piece: PlacedPiece) -> LazyTensor:
        opened.append(piece.file)
        return piece.open()

    lazy = assembled(WHOLE, [PlacedPiece(piece.region, piece.file, partial(noting, piece)) for piece in placed])
    assert (lazy.shape, lazy.nbytes, opened) == (SHAPE, WHOLE.array.nbytes, [])

    assert same_bits(lazy[0:4, 5], WHOLE.array[0:4, 5])

    assert opened == ["1.safetensors", "3.safetensors"]


def test_rows_are_one_range_that_is_copied_as_it_is(tmp_path: Path) -> None:
    lazy = assembled(WHOLE, placed_in(tmp_path, WHOLE, tiles_of(ROWS)))

    assert isinstance(lazy.tensor_to_write(), StoredTensor)
    assert lazy.span is not None
    assert len(lazy.span) == WHOLE.array.nbytes
    assert same_bits(lazy.load(), WHOLE.array)


def test_columns_are_written_in_bounded_pieces(tmp_path: Path) -> None:
    whole = Known.random("F32", (2048, 3072))
    lazy = assembled(whole, placed_in(tmp_path, whole, tiles_of(((0, 2048), (0, 1000, 2000, 3072)))))

    pieces = [bytes(piece) for piece in lazy.tensor_to_write().buffers()]

    assert max(map(len, pieces)) <= 3 * 2**20 < whole.array.nbytes
    assert b"".join(pieces) == whole.array.tobytes()


def test_a_plan_counts_what_each_piece_reads(tmp_path: Path) -> None:
    lazy = assembled(WHOLE, placed_in(tmp_path, WHOLE, tiles_of(TILES)))

    plan = TensorView({"w": lazy}, path="whole").plan({"w": slice(0, 4)})

    assert (plan.nbytes, plan.wanted_nbytes) == (4 * 8 * 4 * 2, 4 * 8 * 4 * 2)
    assert [Path(request.path).name for request in plan.requests] == [f"{place}.safetensors" for place in range(4)]


@pytest.mark.parametrize("name", ["F4", "F6_E2M3", "BF16", "F8_E4M3", "BOOL", "C64"])
def test_elements_of_any_width_are_put_together(tmp_path: Path, name: str) -> None:
    whole = Known.random(name, (4, 16))
    placed = placed_in(tmp_path, whole, tiles_of(((0, 2, 4), (0, 8, 16))))

    assert same_bits(assembled(whole, placed).load(), whole.array)
    assert same_bits(assembled(whole, placed)[1:3, 5:11], whole.array[1:3, 5:11])


def test_torch_gets_the_same_numbers(tmp_path: Path) -> None:
    whole = Known.random("BF16", (6, 6))
    lazy = assembled(whole, placed_in(tmp_path, whole, tiles_of(((0, 6), (0, 1, 6)))), "torch")

    loaded = lazy.load()

    assert loaded.dtype == torch.bfloat16
    assert np.array_equal(loaded.view(torch.uint16).numpy(), whole.array.view("u2"))
    assert torch.equal(lazy[2:4, 0:2].view(torch.uint16), loaded[2:4, 0:2].view(torch.uint16))


def test_it_pickles(tmp_path: Path) -> None:
    lazy = assembled(WHOLE, placed_in(tmp_path, WHOLE, tiles_of(TILES)))

    again = pickle.loads(pickle.dumps(lazy))

    assert same_bits(again[3:5], WHOLE.array[3:5])


@pytest.mark.parametrize("shape", [(), (0, 4), (1,)])
def test_small_tensors(tmp_path: Path, shape: tuple[int, ...]) -> None:
    whole = Known.random("I64", shape)
    regions = [Region((0,) * len(shape), shape)]

    assert same_bits(assembled(whole, placed_in(tmp_path, whole, regions)).load(), whole.array)
    assert same_bits(assembled(whole, placed_in(tmp_path, whole, regions))[...], whole.array)


def test_a_tensor_without_elements_needs_no_pieces() -> None:
    assert assemble("w", "F32", (3, 0), [], path="whole", framework="numpy").load().shape == (3, 0)


def test_of_replicas_one_is_taken(tmp_path: Path) -> None:
    placed = placed_in(tmp_path, WHOLE, [*tiles_of(TILES), *tiles_of(TILES)])

    assert same_bits(assembled(WHOLE, placed).load(), WHOLE.array)


def test_a_missing_piece_is_named(tmp_path: Path) -> None:
    placed = placed_in(tmp_path, WHOLE, tiles_of(TILES))

    with pytest.raises(IntegrityError, match=re.escape("`w` is missing: [3:4, 4:8, 0:4] of [9, 8, 4]")) as raised:
        assembled(WHOLE, placed[:3] + placed[4:])

    assert raised.value.tensor == "w"
    assert "[0:3, 0:4, 0:4] in 0.safetensors" in (raised.value.found or "")


def test_pieces_that_overlap_are_named(tmp_path: Path) -> None:
    placed = placed_in(tmp_path, WHOLE, [*tiles_of(ROWS), Region((2, 0, 0), (5, 8, 4))])

    with pytest.raises(IntegrityError, match="`w` is in two pieces") as raised:
        assembled(WHOLE, placed)

    assert "in 3.safetensors" in (raised.value.found or "")


def test_a_piece_outside_is_named(tmp_path: Path) -> None:
    placed = placed_in(tmp_path, WHOLE, tiles_of(ROWS))

    with pytest.raises(IntegrityError, match="`w` is outside its shape"):
        assemble("w", "F16", (8, 8, 4), placed, path="whole", framework="numpy")

"""A tensor whose rows lie in three files, read as one."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

import tensorkeep
from tensorkeep.entries import TensorEntry
from tensorkeep.errors import SelectionError
from tensorkeep.tensors import LazyTensor, TensorReader
from tensorkeep.transport import JoinedSource
from tests.support.tensors.index_strategies import indices
from tests.support.tensors.plain_files import Known, file_of, same_bits

ROWS = (0, 3, 4, 9)
WHOLE = Known.random("F16", (9, 5, 4))
IN_ONE_FILE = tensorkeep.open(file_of({"w": WHOLE}))["w"]


@pytest.fixture(scope="module", params=["mmap", "pread"])
def split(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> LazyTensor:
    folder = tmp_path_factory.mktemp("shards")
    pieces = []
    for place, (start, stop) in enumerate(pairwise(ROWS)):
        piece = Known(WHOLE.dtype, WHOLE.array[start:stop])
        path = folder / f"{place}.safetensors"
        path.write_bytes(file_of({"first": Known.random("U8", (place,)), "piece": piece}, padding=place))
        pieces.append(tensorkeep.open(path, backend=request.param)["piece"])
    source = JoinedSource([(piece.source, piece.span) for piece in pieces if piece.source and piece.span], "whole")
    return LazyTensor("w", TensorEntry("F16", (9, 5, 4), (0, source.nbytes)), TensorReader(source, 0, "numpy"))


@given(index=indices((9, 5, 4)))
def test_it_indexes_like_the_whole(split: LazyTensor, index: Any) -> None:
    try:
        expected = IN_ONE_FILE[index]
    except SelectionError as error:
        with pytest.raises(SelectionError, match=f"^{re.escape(error.message)} "):
            split[index]
        return

    assert same_bits(split[index], expected)


def test_it_loads_saves_and_casts_like_the_whole(split: LazyTensor, tmp_path: Path) -> None:
    assert same_bits(split.load(), WHOLE.array)
    with np.errstate(invalid="ignore"):
        wide = WHOLE.array.astype("f4")
    assert np.array_equal(split.cast("f32")[2:5, ::2], wide[2:5, ::2], equal_nan=True)

    tensorkeep.save({"w": split}, tmp_path / "whole.safetensors")

    assert same_bits(tensorkeep.open(tmp_path / "whole.safetensors")["w"].load(), WHOLE.array)


@given(start=st.integers(0, 8), rows=st.integers(1, 9))
def test_a_part_reads_only_the_files_that_hold_it(split: LazyTensor, start: int, rows: int) -> None:
    assert same_bits(split[start : start + rows], WHOLE.array[start : start + rows])

"""Lazy tensors are no tensors: whoever uses one as such is told to read it."""

from __future__ import annotations

import copy
import operator
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import tensorkeep

ADVICE = r"index it, such as lazy\[\.\.\.\], or call \.load\(\)"


@pytest.fixture
def file(tmp_path: Path) -> Any:
    tensorkeep.save({"weight": torch.ones(2, 2), "bias": torch.ones(2)}, tmp_path / "a.safetensors")
    return tensorkeep.open(tmp_path / "a.safetensors", framework="torch")


@pytest.mark.parametrize(
    "use",
    [
        lambda lazy: lazy * 2,
        lambda lazy: 2 - lazy,
        lambda lazy: lazy @ lazy,
        lambda lazy: lazy < 2,
        lambda lazy: -lazy,
        lambda lazy: operator.setitem(lazy, 0, 1),
        lambda lazy: lazy * torch.ones(2, 2),
        lambda lazy: torch.ones(2, 2) + lazy,
        torch.linalg.norm,
        lambda lazy: torch.stack([lazy, lazy]),
        lambda lazy: torch.zeros(2, 2).copy_(lazy),
    ],
)
def test_what_needs_a_tensor_says_how_to_read_it(file: Any, use: Callable[[Any], Any]) -> None:
    with pytest.raises(TypeError, match=ADVICE):
        use(file["weight"])


def test_attributes_of_tensors_and_models_say_how_to_read_it(file: Any) -> None:
    with pytest.raises(AttributeError, match=rf"'LazyTensor' object has no attribute 'sum': .*{ADVICE}"):
        file["weight"].sum()
    with pytest.raises((TypeError, AttributeError, RuntimeError), match=ADVICE):
        torch.nn.Linear(2, 2).load_state_dict(file)
    assert not hasattr(file["weight"], "is_cuda")


def test_numpy_reads_it_by_itself(file: Any) -> None:
    lazy, ones = file["weight"], np.ones((2, 2))

    for found in (lazy * ones, ones * lazy, np.float64(1) * lazy, lazy * np.float64(1), np.sqrt(lazy), +lazy[...]):
        assert np.array_equal(found, ones)
    assert (lazy <= ones).all()
    assert copy.copy(lazy).name == "weight"

"""A checkpoint as others read it, and whether it is whole: what tests of rewritten checkpoints ask."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import safetensors.numpy

import tensorkeep

Arrays = dict[str, np.ndarray]
INDEX = "model.safetensors.index.json"


def read_by_others(folder: Path) -> Arrays:
    """Read all files with the reference; the index, if there is one, must say where everything is."""
    read = {path.name: safetensors.numpy.load_file(path) for path in folder.glob("*.safetensors")}
    if (folder / INDEX).exists():
        weight_map = json.loads((folder / INDEX).read_text())["weight_map"]
        assert weight_map == {name: file for file, arrays in read.items() for name in arrays}
    return {name: array for arrays in read.values() for name, array in arrays.items()}


def assert_same(found: Arrays, expected: Arrays) -> None:
    assert found.keys() == expected.keys()
    for name, array in expected.items():
        np.testing.assert_array_equal(found[name], array, err_msg=name, strict=True)


def assert_whole(folder: Path) -> None:
    found = tensorkeep.verify(folder)
    assert found.is_whole
    assert found.findings == ()
    assert found.n_checked == found.n_tensors > 0

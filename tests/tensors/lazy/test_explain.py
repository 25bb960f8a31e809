"""What `explain` says is what loading does, for the libraries that are always there."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import tensorkeep
from tensorkeep.errors import UnsupportedError
from tests.libraries.memory import check_explained


@pytest.mark.parametrize("framework", ["numpy", "torch"])
def test_what_is_explained_is_what_happens(tmp_path: Path, framework: str) -> None:
    assert check_explained(framework, tmp_path / "x.safetensors")["shared"]


def test_reasons(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    tensorkeep.save({"w": np.ones(2**20), "small": np.ones(3, np.float32)}, path)

    with tensorkeep.open(path) as file:
        assert {use.outcome for use in file.explain().values()} == {"shared"}
        with pytest.raises(UnsupportedError, match="framework nothing is invalid"):
            file.explain("nothing")
    with tensorkeep.open(path, backend="pread") as file:
        assert {(use.outcome, use.reason) for use in file.explain("torch").values()} == {
            ("copied", "the file is small, or not mapped")
        }
    with tensorkeep.open(path, verify=True) as file:
        assert {use.outcome for use in file.explain("numpy").values()} == {"copied"}

"""A sharding in the metadata is used only if it is valid and all its devices are here."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import msgspec
import numpy as np
import pytest

import tensorkeep
from tensorkeep.errors import FormatError

TRUE = {"axes": {"x": 1}, "types": ["Auto"], "devices": [0], "spec": ["x"], "memory": None, "arrays": ["w"]}

LIES = {
    "unknown device": {"devices": [7]},
    "no device": {"devices": []},
    "a device too many": {"devices": [0, 0]},
    "a device twice": {"axes": {"x": 2}, "devices": [0, 0]},
    "more axes than NumPy has": {
        "axes": {"x": 1} | {str(number): 1 for number in range(39)},
        "types": ["Auto"] * 40,
    },
    "a larger axis": {"axes": {"x": 2}},
    "an empty axis": {"axes": {"x": 0}},
    "another axis": {"spec": ["y"]},
    "an axis twice": {"spec": [["x", "x"]]},
    "more dimensions": {"spec": [None, None, "x"]},
    "another type": {"types": ["Quick"]},
    "too few types": {"types": []},
    "other memory": {"memory": "paper"},
    "another array": {"arrays": ["v"]},
}


def restored(path: Path, **said: Any) -> Any:
    import tensorkeep.integrations.orbax as ocp

    metadata = {"orbax.shardings": msgspec.json.encode([TRUE | said]).decode()}
    tensorkeep.save_checkpoint({"w": jax.numpy.arange(4.0)}, path / "step", metadata=metadata)
    with ocp.StandardCheckpointer() as checkpointer:
        return checkpointer.restore(path / "step")["w"]


def test_what_is_true_is_used(tmp_path: Path) -> None:
    sharding = restored(tmp_path).sharding

    assert isinstance(sharding, jax.sharding.NamedSharding)
    assert sharding.spec == jax.sharding.PartitionSpec("x")


@pytest.mark.parametrize("lie", LIES)
def test_a_lie_is_ignored(lie: str, tmp_path: Path) -> None:
    array = restored(tmp_path, **LIES[lie])

    assert isinstance(array.sharding, jax.sharding.SingleDeviceSharding)
    assert np.array_equal(array, np.arange(4.0))


@pytest.mark.parametrize("said", [{"axes": 3}, {"devices": ["0"]}, {"arrays": [1]}])
def test_what_is_malformed_is_refused(said: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(FormatError, match=r"metadata 'orbax\.shardings' is damaged"):
        restored(tmp_path, **said)

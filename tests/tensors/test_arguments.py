"""Arguments that are of the wrong kind, and what is said of them."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import tensorkeep
from tensorkeep.errors import DeviceError, StateError, TransportError
from tensorkeep.torch import load_into, restore


@pytest.fixture
def path(tmp_path: Path) -> Path:
    tensorkeep.save({"a": np.ones(3), "b": {"c": 1}}, tmp_path / "s.safetensors")
    return tmp_path / "s.safetensors"


@pytest.mark.parametrize("save", [tensorkeep.save, tensorkeep.save_async, tensorkeep.save_checkpoint])
def test_a_state_in_the_place_of_the_path(save: Callable[[Any, Any], Any]) -> None:
    with pytest.raises(TypeError, match=r"a path is needed, not dict; the state comes first: save\(state, path\)"):
        save("s.safetensors", {"a": 1})


def test_a_directory_in_the_place_of_a_file(path: Path) -> None:
    with pytest.raises(TransportError, match=r"found directory.*save_checkpoint") as caught:
        tensorkeep.save({"a": 1}, path.parent)

    assert caught.value.errno == errno.EISDIR


@pytest.mark.parametrize(("metadata", "key"), [({"step": 1}, "'step'"), ({2: "a"}, "2")])
def test_metadata_that_is_no_text_is_named(path: Path, metadata: Any, key: str) -> None:
    with pytest.raises(TypeError, match=rf"metadata must map str to str, not \w+ to \w+: {key}; .*str"):
        tensorkeep.save({"a": 1}, path, metadata=metadata)


def test_parts_are_chosen_by_patterns(path: Path) -> None:
    with pytest.raises(TypeError, match="`only` must be a pattern, a function, or a list of these, not int"):
        tensorkeep.load(path, only=5)


def test_classes_are_a_list(path: Path) -> None:
    with pytest.raises(StateError, match=r"Pass classes=\[Path\]"):
        tensorkeep.load(path, classes=Path)


@pytest.mark.parametrize("device", ["gpu", "cuda:99", "cuda:-1", torch.float16, 3.5])
def test_devices_are_those_that_are_here(path: Path, device: Any) -> None:
    for use in (
        lambda: tensorkeep.load(path, framework="torch", device=device),
        lambda: load_into(torch.nn.Linear(1, 1), path, device=device),
    ):
        with pytest.raises(DeviceError, match=r"torch has no device .* here.* expected cpu"):
            use()


def test_the_librarys_own_reason_is_told(path: Path) -> None:
    with pytest.raises(DeviceError, match=r"found Torch not compiled with CUDA|found .*NVIDIA") as caught:
        tensorkeep.load(path, framework="torch", device="cuda")
    assert "\n" not in (caught.value.found or "")


def test_a_device_to_which_nothing_can_go_is_refused(tmp_path: Path) -> None:
    arrays, tensors = {"a": np.ones(3)}, {"t": torch.ones(3)}
    for name, state in {
        "arrays": arrays,
        "nested": {"x": arrays},
        "both": arrays | tensors,
        "none": {"s": 1},
    }.items():
        tensorkeep.save(state, tmp_path / f"{name}.safetensors")

    for name in ("arrays", "nested"):
        with pytest.raises(
            DeviceError, match=r"no tensor can go to the device 'meta'.* found only arrays of numpy.*torch"
        ):
            tensorkeep.load(tmp_path / f"{name}.safetensors", device="meta")
    with pytest.raises(DeviceError, match="no tensor can go"):
        tensorkeep.load(tmp_path / "both.safetensors", only="a", device="meta")

    assert tensorkeep.load(tmp_path / "both.safetensors", device="meta")["t"].is_meta
    assert tensorkeep.load(tmp_path / "none.safetensors", device="meta") == {"s": 1}
    assert tensorkeep.load(tmp_path / "arrays.safetensors", device=torch.device("cpu")).keys() == {"a"}
    assert restore(tmp_path / "both.safetensors", rng=False, device="meta")["t"].is_meta
    assert restore(tmp_path / "arrays.safetensors", rng=False, device="meta").keys() == {"a"}

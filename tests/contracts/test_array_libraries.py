"""Array libraries that keep the contract, a toy one among them, which one record makes known."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch

import tensorkeep
from tensorkeep.arrays import LIBRARIES, Library, adapter_for, is_tensor
from tensorkeep.errors import LimitError, MissingDependencyError, UnsupportedError
from tests.contracts.array_library import ArrayLibrary, file_bytes
from tests.support.arrays.toy import TOY, Toy


class TestNumpy(ArrayLibrary):
    framework = "numpy"


class TestTorch(ArrayLibrary):
    framework = "torch"


@pytest.fixture
def toys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(LIBRARIES, TOY.name, TOY)
    monkeypatch.setattr("tensorkeep.arrays._registry._met", {})  # to what class of tensors which library belongs


@pytest.mark.usefixtures("toys")
class TestToy(ArrayLibrary):
    framework = "toy"


@pytest.mark.usefixtures("toys")
def test_a_pickle_is_loaded_as_toys(tmp_path: Path) -> None:
    whole = torch.arange(12.0).reshape(3, 4)
    torch.save({"whole": whole, "columns": whole.T[1:3]}, tmp_path / "x.pt")

    loaded = tensorkeep.load(tmp_path / "x.pt", framework="toy")

    assert [type(loaded[name]) for name in ("whole", "columns")] == [Toy, Toy]
    assert file_bytes(loaded["columns"]) == whole.T[1:3].contiguous().numpy().tobytes()


@pytest.mark.usefixtures("toys")
def test_toys_are_not_copied_without_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tensorkeep.arrays.sharing.MAX_EXPANDED_NBYTES", 1000)
    whole = torch.zeros(100)
    state = {str(place): whole for place in range(100)}
    tensorkeep.save(state, tmp_path / "tied.safetensors")

    assert len(tensorkeep.load(tmp_path / "tied.safetensors", framework="torch")) == 100
    with pytest.raises(LimitError, match="too large to be copied each"):
        tensorkeep.load(tmp_path / "tied.safetensors", framework="toy")


@pytest.mark.usefixtures("toys")
def test_the_reference_api_takes_toys(tmp_path: Path) -> None:
    tensorkeep.save({"w": torch.arange(4.0)}, tmp_path / "x.safetensors")

    with tensorkeep.safe_open(tmp_path / "x.safetensors", framework="ty") as file:
        assert file_bytes(file.get_tensor("w")) == torch.arange(4.0).numpy().tobytes()
        assert file_bytes(file.get_slice("w")[1:3]) == torch.arange(4.0)[1:3].numpy().tobytes()


def test_without_its_record_a_toy_is_not_a_tensor() -> None:
    assert not is_tensor(Toy(b"", (0,), "U8"))
    with pytest.raises(UnsupportedError, match="framework toy is invalid"):
        adapter_for("toy")


def test_a_library_that_is_not_installed_is_named_with_the_way_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    record = Library(
        name="absent",
        module="absent_library.core",
        tensor_classes=("Tensor",),
        arrays="absent_library.core:Arrays",
        install="pip install absent-library",
    )
    monkeypatch.setitem(LIBRARIES, "absent", record)

    with pytest.raises(MissingDependencyError, match=r"absent is not installed.*pip install absent-library"):
        adapter_for("absent")


def test_a_library_is_imported_when_the_first_tensor_is_made() -> None:
    program = """
import sys
from tensorkeep.arrays import LIBRARIES, find_library, library_for, is_tensor
assert library_for("pt").name == "torch" and not is_tensor(1)
assert "torch" not in sys.modules and "numpy" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", program], check=True)

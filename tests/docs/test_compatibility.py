"""What docs/compatibility.md says of files with digests and states is so, for tensorkeep and for the reference."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import safetensors
import safetensors.numpy

import tensorkeep
import tensorkeep.numpy

TENSORS = {"b": np.arange(5, dtype=np.uint8), "w": np.ones((2, 3), np.float32)}


@pytest.fixture
def sealed(tmp_path: Path) -> Path:
    path = tmp_path / "sealed.safetensors"
    tensorkeep.save(TENSORS, path)
    return path


def reference_metadata(path: Path) -> dict[str, str]:
    with safetensors.safe_open(path, framework="np") as file:
        return file.metadata()


def test_the_reference_reads_a_sealed_file(sealed: Path) -> None:
    tensors = safetensors.numpy.load_file(sealed)

    assert {name: array.tolist() for name, array in tensors.items()} == {
        name: array.tolist() for name, array in TENSORS.items()
    }
    assert set(reference_metadata(sealed)) == {"format", "tensorkeep", "tensorkeep.state"}
    assert reference_metadata(sealed)["format"] == "pt"


def test_without_digests_the_bytes_are_those_of_the_reference(tmp_path: Path) -> None:
    tensorkeep.save(TENSORS, tmp_path / "plain.safetensors", digests=False)

    assert (tmp_path / "plain.safetensors").read_bytes() == safetensors.numpy.save(TENSORS)


def test_the_faces_do_not_show_digests(sealed: Path) -> None:
    with tensorkeep.safe_open(sealed, framework="np") as file:
        assert file.metadata() == {"format": "pt"}


def test_the_faces_write_no_digests(sealed: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy.safetensors"

    tensorkeep.numpy.save_file(TENSORS, copy, reference_metadata(sealed))

    assert copy.read_bytes() == safetensors.numpy.save(TENSORS, {"format": "pt"})


def test_the_faces_check_no_digests(sealed: Path, tmp_path: Path) -> None:
    changed = {"b": TENSORS["b"], "x": TENSORS["w"]}
    safetensors.numpy.save_file(changed, tmp_path / "stale.safetensors", reference_metadata(sealed))

    assert set(tensorkeep.numpy.load_file(tmp_path / "stale.safetensors")) == {"b", "x"}
    with tensorkeep.safe_open(tmp_path / "stale.safetensors", framework="np") as file:
        assert file.get_tensor("x").sum() == 6


def test_the_reference_sees_what_is_stored_of_a_state(tmp_path: Path) -> None:
    weight = np.ones((2, 3), np.float32)
    state = {"model": {"a": weight, "b": weight, "row": weight[1]}, "step": 7}
    path = tmp_path / "state.safetensors"

    tensorkeep.save(state, path)

    assert list(safetensors.numpy.load_file(path)) == ["model.a"]
    assert reference_metadata(path)["model.b"] == "model.a"
    assert "model.row" not in reference_metadata(path)
    assert list(tensorkeep.open(path)) == ["model.a", "model.b", "model.row"]
    tensorkeep.save(state, path, ties="copy")
    assert set(safetensors.numpy.load_file(path)) == {"model.a", "model.b", "model.row"}


def test_the_faces_see_tied_tensors_too(tmp_path: Path) -> None:
    weight = np.ones((2, 3), np.float32)
    path = tmp_path / "state.safetensors"

    tensorkeep.save({"a": weight, "b": weight, "row": weight[1]}, path)

    assert set(tensorkeep.numpy.load_file(path)) == {"a", "b", "row"}
    with tensorkeep.safe_open(path, framework="np") as file:
        assert list(file.keys()) == ["a", "b", "row"]
        assert file.metadata() == {"format": "pt"}
    assert [name for name, _ in tensorkeep.deserialize(path.read_bytes())] == ["a"]


def test_a_header_that_another_program_changed_is_refused(sealed: Path, tmp_path: Path) -> None:
    stale = tmp_path / "stale.safetensors"
    safetensors.numpy.save_file({"x": TENSORS["w"]}, stale, reference_metadata(sealed))

    with pytest.raises(tensorkeep.errors.IntegrityError):
        tensorkeep.open(stale)

    assert list(tensorkeep.open(stale, check=False)) == ["x"]
    tensorkeep.save(tensorkeep.open(stale, check=False).load(), stale)
    assert tensorkeep.verify(stale).is_whole


def test_tensors_that_another_program_changed_are_named(sealed: Path) -> None:
    head, others = sealed.read_bytes()[:-29], sealed.read_bytes()[-5:]

    sealed.write_bytes(head + (2 * TENSORS["w"]).tobytes() + others)

    assert tensorkeep.load(sealed)["w"].sum() == 12
    assert [finding.tensor for finding in tensorkeep.verify(sealed).findings] == ["w"]

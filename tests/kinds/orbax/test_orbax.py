"""Orbax checkpoints of every form: equal arrays, exact slices, the saved tree, and nothing without consent."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tensorkeep
from tensorkeep import NamedData
from tensorkeep.errors import TensorNotFoundError, UnsafeError, UnsupportedError

FORMS = ("ocdbt-2", "ocdbt-3", "files-2", "files-3")
NAMES = [
    *("count", "moments.mu", "moments.nu", "pair.0", "params.dense/~/w", "params.layers.0", "params.layers.1"),
    *("rate", "step"),
]
DTYPES = (
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float16", "float32", "float64", "complex64", "complex128"),
    *("bfloat16", "float8_e4m3fn", "float8_e5m2"),
)


ENGINES = pytest.mark.parametrize("engine", [None, "tensorstore"], ids=["own", "tensorstore"])


def opened(path: Path, **options: Any) -> Any:
    return tensorkeep.open(path, **options)


@ENGINES
@pytest.mark.parametrize("form", FORMS)
def test_every_form_has_the_same_tree(form: str, engine: str | None, saved: Path) -> None:
    with opened(saved / form, engine=engine) as checkpoint:
        assert sorted(checkpoint) == NAMES
        assert checkpoint.has_tree
        tree = checkpoint.load_tree()
    assert np.array_equal(tree["params"]["dense/~/w"], np.arange(12, dtype=np.float32).reshape(3, 4))
    assert [array.shape for array in tree["params"]["layers"]] == [(3,), (2, 2)]
    assert tree["pair"][0].dtype.name == "bfloat16"
    assert tree["pair"][1] == "a text"
    assert (tree["step"], tree["rate"]) == (7, 0.5)
    assert {key: tree[key] for key in ("none", "no_dict", "no_list", "no_tuple")} == {
        "none": None,
        "no_dict": {},
        "no_list": [],
        "no_tuple": (),
    }


def test_all_types_of_the_tree_come_back_if_they_were_saved(saved: Path) -> None:
    with opened(saved / "rich") as checkpoint:
        tree = checkpoint.tree

    assert type(tree["moments"]) is NamedData
    assert tree["moments"].class_name == "__main__:Moments"
    assert list(tree["moments"].fields) == ["mu", "nu"]
    assert type(tree["pair"]) is tuple
    assert type(tree["params"]["layers"]) is list


@ENGINES
def test_every_dtype_is_equal_bit_for_bit(engine: str | None, saved: Path) -> None:
    with opened(saved / "standard", engine=engine) as checkpoint:
        for name in DTYPES:
            dtype = np.dtype(getattr(ml_dtypes, name, name))
            bits = np.random.default_rng(len(name)).integers(0, 2 if name == "bool" else 100, (5, 6))
            found = checkpoint[name].load()
            assert found.dtype == dtype, name
            assert found.tobytes() == bits.astype(dtype).tobytes(), name


INDEXES = (
    np.s_[3],
    np.s_[-1],
    np.s_[10:20, ::2],
    np.s_[::-3, 5:6],
    np.s_[[5, 1, 5], 2],
    np.s_[..., None, -1],
    np.s_[50:10],
    np.s_[63:64:7],
    np.s_[1::5, 1::5],
    np.s_[[1, 2], [3, 4]],
)


@ENGINES
def test_slices_mean_what_they_mean_to_numpy(engine: str | None, saved: Path) -> None:
    expected = np.arange(64.0 * 48, dtype=np.float32).reshape(64, 48)

    with opened(saved / "chunked", engine=engine) as checkpoint:
        for index in INDEXES:
            found = checkpoint["w"][index]
            assert np.array_equal(found, expected[index]), index
            assert np.shape(found) == expected[index].shape, index


def test_torch_gets_tensors_too(saved: Path) -> None:
    import torch

    with opened(saved / "chunked", framework="torch") as checkpoint:
        assert torch.equal(checkpoint["cube"][1:3], torch.arange(6.0 * 7 * 8).reshape(6, 7, 8)[1:3])
        assert checkpoint["w"].cast("bf16").load().dtype is torch.bfloat16


def test_a_part_of_the_tree_is_loaded(saved: Path) -> None:
    def load(only: Any) -> Any:
        return tensorkeep.load(saved / "ocdbt-2", only=only)

    assert list(load("params.*")) == ["params"]
    part = load(["params.layers.1", "pair.1"])
    assert part["params"]["layers"][0] is None
    assert part["pair"] == [None, "a text"]
    with pytest.raises(TensorNotFoundError):
        load("nothing")


def test_items_that_were_saved_together_are_one_tree(saved: Path) -> None:
    with opened(saved / "run" / "10") as checkpoint:
        assert sorted(checkpoint) == ["rng.jax_random_key.checkpoint", "state.w"]
        assert checkpoint.tree["meta"] == {"step": 10, "names": ["a"]}
        assert '"note":"ours"' in checkpoint.metadata["orbax"]
        assert np.array_equal(checkpoint["state.w"].load(), np.full(3, 10))


def test_a_step_of_a_run_is_chosen(saved: Path) -> None:
    with pytest.raises(UnsupportedError, match=r"1, 2, 10.*run/10.*--variant latest"):
        opened(saved / "run")
    with opened(saved / "run", variant="latest") as checkpoint:
        assert checkpoint["state.w"][0] == 10
    with opened(saved / "run", variant="2") as checkpoint:
        assert checkpoint["state.w"][0] == 2
    with opened(saved / "single") as checkpoint:  # the only step, whose only item has no name
        assert list(checkpoint) == ["w"]


@ENGINES
def test_what_the_new_functions_write_is_read(engine: str | None, saved_by_new_functions: Path) -> None:
    """They call a tree `state`, and write it as an item of this name."""
    with opened(saved_by_new_functions / "tree", engine=engine) as checkpoint:
        assert sorted(checkpoint) == [f"state.{name}" for name in NAMES]
        assert checkpoint["state.params.dense/~/w"][::-2, 1].tolist() == [9, 1]
        assert checkpoint.load_tree()["state"]["pair"][1] == "a text"
    assert tensorkeep.verify(saved_by_new_functions / "tree").findings == ()
    with opened(saved_by_new_functions / "items", engine=engine) as checkpoint:
        assert sorted(checkpoint) == ["data.at", "model.w"]
    with opened(saved_by_new_functions / "run", variant="latest", engine=engine) as checkpoint:
        assert checkpoint["state.w"].load().tolist() == [10, 10, 10]


def test_a_conversion_keeps_the_tree_and_the_metadata(saved: Path, tmp_path: Path) -> None:
    done = tensorkeep.convert(saved / "rich", tmp_path / "model.safetensors")
    assert tensorkeep.diff(saved / "rich", tmp_path / "model.safetensors").is_equal

    assert (done.n_tensors, done.has_tree, done.n_values) == (len(NAMES), True, 1)
    assert tensorkeep.verify(tmp_path / "model.safetensors").is_whole
    state = tensorkeep.load(tmp_path / "model.safetensors")
    assert state["moments"].class_name == "__main__:Moments"
    assert state["pair"][1] == "a text"
    with tensorkeep.open(tmp_path / "model.safetensors") as converted:
        assert "PyTreeCheckpointHandler" in converted.metadata["orbax"]


def test_it_is_exported(saved: Path, tmp_path: Path) -> None:
    tensorkeep.export(saved / "chunked", tmp_path / "chunked.npz")

    with np.load(tmp_path / "chunked.npz") as archive:
        assert np.array_equal(archive["cube"], np.arange(6.0 * 7 * 8).reshape(6, 7, 8))


def test_dtypes_that_no_tensor_has_are_said(saved: Path, tmp_path: Path) -> None:
    with opened(saved / "int4") as checkpoint:
        assert list(checkpoint) == ["w"]
        assert checkpoint.unknowns == {"packed": "an array of int4"}
    with pytest.raises(UnsafeError, match="int4"):
        opened(saved / "int4", strict=True)
    with pytest.raises(UnsafeError, match="int4"):
        tensorkeep.convert(saved / "int4", tmp_path / "model.safetensors")


def test_what_a_database_holds_itself_has_a_checksum(saved: Path) -> None:
    found = tensorkeep.verify(saved / "ocdbt-2")
    assert (found.n_checked, found.n_unprotected, found.is_whole) == (len(NAMES), 0, True)
    for found in (tensorkeep.verify(saved / "files-2"), tensorkeep.verify(saved / "ocdbt-2", engine="tensorstore")):
        assert (found.n_checked, found.n_unprotected, found.is_damaged) == (0, len(NAMES), False)


def test_a_scan_finds_nothing_that_runs(saved: Path) -> None:
    for form in (*FORMS, "rich", "run"):
        report = tensorkeep.scan(saved / form)
        assert report.is_clean, report.findings
        assert report.files


def test_a_pickle_among_its_files_is_found(saved: Path, tmp_path: Path) -> None:
    step = tmp_path / "step"
    (step / "d").mkdir(parents=True)
    (step / "manifest.ocdbt").write_bytes((saved / "ocdbt-2" / "manifest.ocdbt").read_bytes())
    for name in ("0" * 32, "a"):
        (step / "d" / name).write_bytes(b"cposix\nsystem\n(S'false'\ntR.")

    found = [file.path for file in tensorkeep.scan(step).files if file.findings]

    assert sorted(os.path.basename(file) for file in found) == ["0" * 32, "a"]

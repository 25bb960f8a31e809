"""Patches: made, applied, undone and combined. What comes out is what was saved, byte for byte."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy

import tensorkeep
from tensorkeep import patches
from tensorkeep.errors import DestinationExistsError, IntegrityError, RefusedError, UnsupportedError
from tests.support.patches.models import contents, save, step


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Steps 1 to 4 of a run, and the patch to each from the one before."""
    folder = tmp_path_factory.mktemp("run")
    for number in range(1, 5):
        save(folder / str(number), number)
    for number in range(2, 5):
        patch = folder / f"{number}.safetensors"
        patches.make(folder / str(number - 1), folder / str(number), patch, reversible=True)
    return folder


def copy_of(run: Path, number: int, to: Path) -> Path:
    return Path(shutil.copytree(run / str(number), to))


def test_a_patched_directory_has_the_same_bytes_as_the_new_checkpoint_and_back(run: Path, tmp_path: Path) -> None:
    model = copy_of(run, 1, tmp_path / "model")
    steps = [run / f"{number}.safetensors" for number in (2, 3, 4)]

    patches.apply(model, steps[0])
    once = contents(model)
    patches.apply(model, *steps[1:])
    thrice = contents(model)
    patches.undo(model, *steps)

    assert (once, thrice, contents(model)) == (contents(run / "2"), contents(run / "4"), contents(run / "1"))


def test_a_chain_is_the_patch_from_the_first_to_the_last(run: Path, tmp_path: Path) -> None:
    steps = [run / f"{number}.safetensors" for number in (2, 3, 4)]
    model = copy_of(run, 1, tmp_path / "model")

    chained = patches.chain(steps, tmp_path / "chain.safetensors")
    patches.apply(model, tmp_path / "chain.safetensors")
    patched = contents(model)
    patches.undo(model, tmp_path / "chain.safetensors")

    direct = patches.make(run / "1", run / "4", tmp_path / "direct.safetensors", reversible=True)
    assert (patched, contents(model)) == (contents(run / "4"), contents(run / "1"))
    assert chained.n_changed == direct.n_changed
    assert (tmp_path / "chain.safetensors").read_bytes() == (tmp_path / "direct.safetensors").read_bytes()


def test_one_patch_is_a_chain_too(run: Path, tmp_path: Path) -> None:
    patches.chain(run / "2.safetensors", tmp_path / "path.safetensors")
    patches.chain(str(run / "2.safetensors"), tmp_path / "text.safetensors")
    with tensorkeep.open(run / "2.safetensors") as patch:
        patches.chain(patch, tmp_path / "open.safetensors")

    written = {(tmp_path / f"{name}.safetensors").read_bytes() for name in ("path", "text", "open")}
    assert len(written) == 1
    model = copy_of(run, 1, tmp_path / "model")
    patches.apply(model, tmp_path / "path.safetensors")
    assert contents(model) == contents(run / "2")


def test_there_and_back_is_nothing(run: Path, tmp_path: Path) -> None:
    patches.make(run / "2", run / "1", tmp_path / "back.safetensors")

    nothing = patches.chain([run / "2.safetensors", tmp_path / "back.safetensors"], tmp_path / "nothing.safetensors")

    assert (nothing.n_changed, nothing.n_added, nothing.n_removed, nothing.nbytes) == (0, 0, 0, 0)
    with pytest.raises(IntegrityError, match="does not follow"):
        patches.chain([run / "2.safetensors"] * 2, tmp_path / "twice.safetensors")


def test_a_patch_writes_elsewhere_and_replaces_nothing_unasked(run: Path, tmp_path: Path) -> None:
    patch = run / "2.safetensors"

    patches.apply(run / "1", patch, output=tmp_path / "new")
    patches.apply(run / "1", patch, output=tmp_path / "new.safetensors")

    assert contents(tmp_path / "new") == contents(run / "2")
    assert tensorkeep.diff(tensorkeep.open(run / "2"), tensorkeep.open(tmp_path / "new.safetensors")).is_equal
    for output in ("new", "new.safetensors"):
        with pytest.raises(DestinationExistsError):
            patches.apply(run / "1", patch, output=tmp_path / output)
    patches.apply(run / "1", patch, output=tmp_path / "new", overwrite=True)
    with pytest.raises(DestinationExistsError):
        patches.make(run / "1", run / "2", patch)


def test_files_of_others_are_patched(tmp_path: Path) -> None:
    old, new = ({name: array for name, array in step(3, n).items() if name != "tied"} for n in (1, 2))
    safetensors.numpy.save_file({"w": old["float32"], "v": old["same"]}, tmp_path / "old.safetensors")
    safetensors.numpy.save_file({"w": new["float32"], "v": new["same"]}, tmp_path / "new.safetensors")
    np.savez(tmp_path / "new.npz", w=new["float32"], v=new["same"])

    for target in ("new.safetensors", "new.npz"):
        patch = tmp_path / f"{target}.patch.safetensors"
        assert patches.make(tmp_path / "old.safetensors", tmp_path / target, patch).n_changed == 1
        patches.apply(tmp_path / "old.safetensors", patch, output=tmp_path / "out.safetensors", overwrite=True)
        loaded = safetensors.numpy.load_file(tmp_path / "out.safetensors")
        assert loaded["w"].tobytes() == new["float32"].tobytes()

    file = shutil.copy(tmp_path / "old.safetensors", tmp_path / "odd-00001-of-00001.safetensors")
    patches.apply(file, patch)
    assert safetensors.numpy.load_file(file)["w"].tobytes() == new["float32"].tobytes()
    with pytest.raises(UnsupportedError, match="in place"):
        patches.apply(tmp_path / "new.npz", patch)


def test_a_patch_fits_no_other_checkpoint_and_nothing_changes(run: Path, tmp_path: Path) -> None:
    model = copy_of(run, 2, tmp_path / "model")

    with pytest.raises(IntegrityError, match="applied already"):
        patches.apply(model, run / "2.safetensors")
    with pytest.raises(IntegrityError, match=r"for another checkpoint.*`bfloat16`"):
        patches.apply(model, run / "4.safetensors")
    with pytest.raises(IntegrityError, match="undone already"):
        patches.undo(model, run / "3.safetensors")
    with pytest.raises(IntegrityError, match=r"did not make this checkpoint.*in which they were applied"):
        patches.undo(model, run / "4.safetensors")
    with pytest.raises(UnsupportedError):
        patches.apply(model)

    assert contents(model) == contents(run / "2")


def test_a_damaged_base_gives_an_error_and_stays(run: Path, tmp_path: Path) -> None:
    model = copy_of(run, 1, tmp_path / "model")
    shard = next(path for path in sorted(model.glob("*.safetensors")) if "float64" in tensorkeep.open(path))
    span = tensorkeep.open(shard)["float64"].span
    data = bytearray(shard.read_bytes())
    data[span.start + 7] ^= 1
    shard.write_bytes(data)
    before = contents(model)

    with pytest.raises(IntegrityError, match="float64"):
        patches.apply(model, run / "2.safetensors")
    with pytest.raises(IntegrityError, match="float64"):
        patches.make(model, run / "2", tmp_path / "patch.safetensors")

    assert contents(model) == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model"]


def test_what_a_patch_does_not_hold_cannot_be_undone(run: Path, tmp_path: Path) -> None:
    made = patches.make(run / "1", run / "2", tmp_path / "patch.safetensors")
    model = copy_of(run, 2, tmp_path / "model")

    assert not made.is_reversible
    with pytest.raises(RefusedError, match="reversible=True"):
        patches.undo(model, tmp_path / "patch.safetensors")


def test_a_step_of_reinforcement_learning_takes_less_than_one_percent(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    old = rng.integers(0, 2**16, 3 * 2**19 + 5, np.uint16)
    new = old.copy()
    places = rng.choice(len(old), len(old) // 100, replace=False)
    new[places] += rng.choice([1, 2, 3, -1, -2, -3], len(places)).astype(np.int16).view(np.uint16)
    for name, bits in (("old", old), ("new", new)):
        tensorkeep.save({"w": bits.view("bfloat16")}, tmp_path / f"{name}.safetensors")

    made = patches.make(tmp_path / "old.safetensors", tmp_path / "new.safetensors", tmp_path / "patch.safetensors")

    assert made.nbytes < 0.0075 * old.nbytes


def test_nested_states_and_their_values_are_patched(tmp_path: Path) -> None:
    old = {"model": {"w": np.arange(5.0)}, "epoch": 1, "log": [1, 2]}
    new = {"model": {"w": np.arange(5.0) + 1}, "epoch": 2, "log": [1, 2, 3], "done": True}
    tensorkeep.save(old, tmp_path / "old.safetensors")
    tensorkeep.save(new, tmp_path / "new.safetensors")
    wanted = (tmp_path / "new.safetensors").read_bytes()
    patches.make(tmp_path / "old.safetensors", tmp_path / "new.safetensors", tmp_path / "patch.safetensors")

    patches.apply(tmp_path / "old.safetensors", tmp_path / "patch.safetensors")

    assert (tmp_path / "old.safetensors").read_bytes() == wanted
    patches.undo(tmp_path / "old.safetensors", tmp_path / "patch.safetensors")
    assert tensorkeep.load(tmp_path / "old.safetensors")["log"] == [1, 2]


def test_split_tensors_are_compared_whole(tmp_path: Path) -> None:
    for name, steps in (("old", 1), ("new", 2)):
        tensorkeep.save_checkpoint(step(1, steps), tmp_path / name, max_shard_size="1kB", split_large=True)
    patches.make(tmp_path / "old", tmp_path / "new", tmp_path / "patch.safetensors")
    wanted = contents(tmp_path / "new")

    patches.apply(tmp_path / "old", tmp_path / "patch.safetensors")

    assert contents(tmp_path / "old") == wanted


def test_a_patch_never_replaces_what_it_is_made_of(tmp_path: Path) -> None:
    old, new = save(tmp_path / "old", 1), save(tmp_path / "new", 2)
    file = next(old.glob("*.safetensors"))
    before = file.read_bytes()

    with pytest.raises(RefusedError, match="made of"):
        patches.make(old, new, file, overwrite=True)

    assert file.read_bytes() == before

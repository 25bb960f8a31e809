"""What is open already, in the place of a path: views, computed tensors, and what is seen through patches."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tensorkeep
from tensorkeep.errors import DestinationExistsError, IntegrityError, RefusedError, UnsupportedError
from tensorkeep.signing import PrivateKey
from tensorkeep.tensors import LazyTensors
from tests.support.patches.models import save, step
from tests.support.remote.s3_bucket import Bucket

Make = Callable[[Path, LazyTensors], LazyTensors]


@pytest.fixture(scope="module")
def bucket() -> Iterator[Bucket]:
    with Bucket.served() as served:
        yield served


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory with two models of the same names, and a patch from one to the other."""
    made = tmp_path_factory.mktemp("models")
    random = np.random.default_rng(0)
    for name in "ab":
        tensors = {f"layer.{n}.up": random.random((40, 6), np.float32).astype(ml_dtypes.bfloat16) for n in range(4)}
        tensorkeep.save_checkpoint(tensors, made / name, max_shard_size=1000, metadata={"step": name})
    tensorkeep.patches.make(made / "a", made / "b", made / "patch.safetensors")
    return made


def averaged(folder: Path, tensors: LazyTensors) -> LazyTensors:
    return tensorkeep.combine(lambda a, b: (a + b) / 2, tensors, tensorkeep.open(folder / "b"), scope="elements")


def through_a_patch(folder: Path, tensors: LazyTensors) -> LazyTensors:
    return tensorkeep.patches.view(tensors, tensorkeep.open(folder / "patch.safetensors"))


VIEWS: dict[str, Make] = {
    "renamed": lambda _, tensors: tensors.select("*.[123].*").rename(lambda name: f"model.{name}"),
    "cast": lambda _, tensors: tensors.cast("f32"),
    "mapped": lambda _, tensors: tensors.map(lambda up: up * 2, scope="rows"),
    "combined": averaged,
    "merged": lambda folder, tensors: tensorkeep.merging.average(tensors, tensorkeep.open(folder / "b")),
    "patched": through_a_patch,
    "open checkpoint": lambda _, tensors: tensors,
}


@pytest.fixture(params=VIEWS)
def view(request: pytest.FixtureRequest, folder: Path) -> Iterator[LazyTensors]:
    with tensorkeep.open(folder / "a") as tensors:
        yield VIEWS[request.param](folder, tensors)


def contents(place: Any) -> dict[str, tuple[str, bytes, bytes | None]]:
    with tensorkeep.open(place, framework="numpy") as tensors:
        return {name: (lazy.dtype, lazy.load().tobytes(), lazy.digest) for name, lazy in tensors.items()}


def saved(view: LazyTensors, place: Path) -> Path:
    tensorkeep.save_checkpoint(view, place)
    return place


def test_reshard_writes_what_saving_and_resharding_would(tmp_path: Path, view: LazyTensors) -> None:
    tensorkeep.reshard(view, tmp_path / "direct", max_shard_size=1000, sha256=True)

    tensorkeep.reshard(saved(view, tmp_path / "saved"), tmp_path / "twice", max_shard_size=1000, sha256=True)
    assert contents(tmp_path / "direct") == contents(tmp_path / "twice")
    names = [[path.name for path in sorted((tmp_path / place).iterdir())] for place in ("direct", "twice")]
    assert names[0] == names[1]
    assert len(names[0]) >= 3
    assert tensorkeep.verify(tmp_path / "direct").n_unprotected == 0


def test_reshard_sends_views_to_a_bucket(tmp_path: Path, bucket: Bucket, view: LazyTensors) -> None:
    place = bucket.at(f"{tmp_path.name}/")

    tensorkeep.reshard(view, place, max_shard_size=1000)

    assert contents(place) == contents(saved(view, tmp_path / "saved"))
    assert tensorkeep.verify(place).n_unprotected == 0


def test_ranks_get_their_parts_of_views(tmp_path: Path, view: LazyTensors) -> None:
    done = tensorkeep.reshard_for_ranks(view, tmp_path / "ranks", 2, plan={"*.up": "colwise"})

    assert len(done.divided) == len(view)
    assert tensorkeep.diff(tmp_path / "ranks", saved(view, tmp_path / "saved")).is_equal


def test_export_writes_views(tmp_path: Path, view: LazyTensors) -> None:
    done = tensorkeep.export(view.cast("f32"), tmp_path / "direct.npz")

    tensorkeep.export(saved(view, tmp_path / "saved"), tmp_path / "twice.npz", cast="f32")
    assert (done.source, done.n_tensors) == (view.path, len(view))
    with np.load(tmp_path / "direct.npz") as direct, np.load(tmp_path / "twice.npz") as twice:
        assert {name: direct[name].tobytes() for name in direct} == {name: twice[name].tobytes() for name in twice}


def test_convert_writes_views(tmp_path: Path, view: LazyTensors) -> None:
    done = tensorkeep.convert(view, tmp_path / "converted", max_shard_size=1000)

    assert done.sources == (view.path,)
    assert contents(tmp_path / "converted") == contents(saved(view, tmp_path / "saved"))


def test_views_and_paths_are_joined(folder: Path, tmp_path: Path) -> None:
    with tensorkeep.open(folder / "a") as tensors:
        tensorkeep.join([tensors.add_prefix("a.").cast("f32"), folder / "b"], tmp_path / "both")
        with pytest.raises(RefusedError, match="in two of the checkpoints"):
            tensorkeep.join([tensors, folder / "b"], tmp_path / "other")

    assert len(tensorkeep.open(tmp_path / "both")) == 8
    assert not (tmp_path / "other").exists()


def test_the_files_stay_open(folder: Path, tmp_path: Path) -> None:
    with tensorkeep.open(folder / "a") as tensors:
        tensorkeep.reshard(tensors, tmp_path / "1")
        tensorkeep.export(tensors.cast("f32"), tmp_path / "2.npz")

        assert len(tensors.load()) == 4


def test_a_view_does_not_replace_the_files_that_it_is_a_part_of(tmp_path: Path) -> None:
    tensorkeep.save_checkpoint(step(1), tmp_path / "model")
    with tensorkeep.open(tmp_path / "model") as tensors:
        part = tensors.drop(next(iter(tensors)))
        with pytest.raises(DestinationExistsError):
            tensorkeep.reshard(part, tmp_path / "model")
        assert len(tensorkeep.open(tmp_path / "model")) == len(tensors)
        tensorkeep.reshard(part.map(lambda tensor: tensor), tmp_path / "model", overwrite=True)

    assert len(tensorkeep.open(tmp_path / "model")) == len(part)
    assert tensorkeep.verify(tmp_path / "model").is_whole


def test_an_open_checkpoint_is_replaced_by_itself(tmp_path: Path) -> None:
    before = contents(save(tmp_path / "model", 1))
    with tensorkeep.open(tmp_path / "model") as tensors:
        tensorkeep.reshard(tensors, tmp_path / "model", max_shard_size="1GB")

    assert contents(tmp_path / "model") == before
    assert len(list((tmp_path / "model").iterdir())) == 1


def test_damage_gets_no_new_digest(tmp_path: Path) -> None:
    tensorkeep.save({"w": np.ones(1000, np.float32)}, tmp_path / "a.safetensors")
    content = bytearray((tmp_path / "a.safetensors").read_bytes())
    content[-1] ^= 1
    (tmp_path / "a.safetensors").write_bytes(content)

    with tensorkeep.open(tmp_path / "a.safetensors") as file:
        for source in (file, file.select("w")):
            with pytest.raises(IntegrityError, match="`w`"):
                tensorkeep.reshard(source, tmp_path / "b", cast="bf16")
            with pytest.raises(IntegrityError, match="`w`"):
                tensorkeep.export(source, tmp_path / "b.npz")
    assert not (tmp_path / "b").exists()
    assert not (tmp_path / "b.npz").exists()


@pytest.mark.parametrize("verify", [False, True])
@pytest.mark.parametrize("shard_size", ["1GB", "1KB"])
def test_what_was_saved_since_is_not_replaced_by_what_is_open(tmp_path: Path, shard_size: str, verify: bool) -> None:
    model = tmp_path / "model"
    save(model, 1)
    tensorkeep.reshard(model, model, max_shard_size=shard_size)
    with tensorkeep.open(model, verify=verify) as tensors:
        tensorkeep.save_checkpoint(step(2), model, max_shard_size=shard_size)
        newer = contents(model)
        for write in (tensorkeep.reshard, tensorkeep.convert):
            with pytest.raises(DestinationExistsError):
                write(tensors, model)  # type: ignore[operator]
        assert contents(model) == newer


@pytest.mark.parametrize("verify", [False, True])
def test_damage_in_a_piece_of_a_split_tensor_gets_no_new_digest(tmp_path: Path, verify: bool) -> None:
    state = {"w": np.arange(40_000, dtype=np.float32).reshape(400, 100)}
    tensorkeep.save_checkpoint(state, tmp_path / "a", max_shard_size="50KB", split_large=True)
    second = sorted((tmp_path / "a").glob("*.safetensors"))[1]
    content = bytearray(second.read_bytes())
    content[-1] ^= 1
    second.write_bytes(content)

    with tensorkeep.open(tmp_path / "a", verify=verify) as tensors:
        view = tensors.rename(str.upper)
        writes: list[Callable[[], object]] = [
            lambda: tensorkeep.save(view, tmp_path / "b"),
            lambda: tensorkeep.save(tensors, tmp_path / "b"),
            lambda: tensorkeep.save_checkpoint(view, tmp_path / "b"),
            lambda: tensorkeep.save_checkpoint(view, tmp_path / "b", max_shard_size="30KB", split_large=True),
            lambda: tensorkeep.reshard(view, tmp_path / "b"),
            lambda: tensorkeep.reshard(view, tmp_path / "b", cast="bf16"),
            lambda: tensorkeep.convert(view, tmp_path / "b"),
            lambda: tensorkeep.export(view, tmp_path / "b.npz"),
        ]
        for write in writes:
            with pytest.raises(IntegrityError, match=r"`w\[125:250\]`"):
                write()
    assert [path.name for path in tmp_path.iterdir() if not path.is_dir() or any(path.iterdir())] == ["a"]


def test_split_tensors_keep_their_bytes_through_views(tmp_path: Path) -> None:
    state = {"w": np.arange(40_000, dtype=np.float32).reshape(400, 100), "b": np.ones(3, np.float32)}
    tensorkeep.save_checkpoint(state, tmp_path / "a", max_shard_size="50KB", split_large=True)
    for verify in (False, True):
        with tensorkeep.open(tmp_path / "a", framework="torch", verify=verify) as tensors:
            tensorkeep.reshard(tensors.select("w"), tmp_path / f"{verify}", max_shard_size="1GB")
            tensorkeep.save_checkpoint(tensors, tmp_path / f"split {verify}", max_shard_size="30KB", split_large=True)
        for directory in (tmp_path / f"{verify}", tmp_path / f"split {verify}"):
            written = tensorkeep.load(directory, framework="numpy")
            np.testing.assert_array_equal(written["w"], state["w"])
            assert tensorkeep.verify(directory).is_whole


def test_arguments_that_open_a_path_are_refused(folder: Path, tmp_path: Path) -> None:
    trust = PrivateKey.generate().public
    with tensorkeep.open(folder / "a") as tensors:
        for arguments in ({"variant": "fp16"}, {"trust": trust}, {"variant": "fp16", "trust": trust}):
            for write in (tensorkeep.reshard, tensorkeep.convert, tensorkeep.export):
                with pytest.raises(UnsupportedError, match=f"{' and '.join(f'{name}=' for name in arguments)} would"):
                    write(tensors.select("*"), tmp_path / "b.npz", **arguments)  # type: ignore[operator]
        with pytest.raises(UnsupportedError, match="provenance"):
            tensorkeep.reshard(tensors.select("*"), tmp_path / "b", provenance=True)
        tensorkeep.reshard(tensors, tmp_path / "c", provenance=True)
    assert (tmp_path / "c" / "model.provenance.json").exists()


def test_workers_copy_what_a_view_leaves_as_it_is(folder: Path, tmp_path: Path) -> None:
    with ProcessPoolExecutor(1, get_context("spawn")) as executor, tensorkeep.open(folder / "a") as tensors:
        view = tensors.map(lambda up: up * 2, "layer.0.*", scope="elements")
        tensorkeep.reshard(view, tmp_path / "new", max_shard_size=1000, executor=executor)
        with pytest.raises(UnsupportedError, match="workers cannot read what is open in this process"):
            tensorkeep.reshard_for_ranks(view, tmp_path / "ranks", 2, plan={"*.up": "colwise"}, executor=executor)
        tensorkeep.save_checkpoint(view, tmp_path / "saved")

    assert contents(tmp_path / "new") == contents(tmp_path / "saved")


def test_a_view_of_several_checkpoints_has_no_plan_of_a_model(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "config.json").write_text("{}")
    monkeypatch.chdir(tmp_path)
    with tensorkeep.open(folder / "a") as a, tensorkeep.open(folder / "b") as b:
        both = tensorkeep.combine(lambda x, y: x + y, a, b, scope="elements")
        with pytest.raises(FileNotFoundError, match=r"no config\.json beside the checkpoint"):
            tensorkeep.reshard_for_ranks(both, tmp_path / "ranks", 2)
        tensorkeep.reshard_for_ranks(both, tmp_path / "ranks", 2, plan={"*.up": "colwise"})

    assert not list((tmp_path / "ranks").glob("*/config.json"))

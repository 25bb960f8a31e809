"""`push` to S3 and to file systems of fsspec: one conditional write shows all of it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch
from uuid import uuid4

import numpy as np
import pytest
from safetensors.numpy import save_file

import tensorkeep
from tensorkeep import Key
from tensorkeep.encryption import new_key
from tensorkeep.errors import DestinationExistsError, SourceChangedError, TransportError, UnsupportedError
from tensorkeep.transport import RemotePath
from tests.support.remote.killed_pushes import push_killed_everywhere
from tests.support.remote.s3_bucket import Bucket

WEIGHTS = {f"w{n}": np.random.default_rng(n).standard_normal((100, 200), np.float32) for n in range(4)}
INDEX = "model.safetensors.index.json"


@pytest.fixture(scope="module")
def bucket() -> Iterator[Bucket]:
    with Bucket.served() as served:
        yield served


@pytest.fixture
def place() -> str:
    return uuid4().hex[:8]


@pytest.fixture
def model(tmp_path: Path) -> Path:
    folder = tmp_path / "my-model"
    tensorkeep.save_checkpoint(WEIGHTS, folder, max_shard_size="200KB")
    folder.joinpath("config.json").write_text('{"of": "a model"}')
    folder.joinpath("modeling.py").write_text("raise SystemExit")
    return folder


def changed(**new: Any) -> dict[str, Any]:
    return WEIGHTS | {name: WEIGHTS[name] + value for name, value in new.items()}


def test_a_checkpoint_is_published_and_replaced(bucket: Bucket, place: str, model: Path) -> None:
    url = bucket.at(f"{place}/m/")
    bucket.client.put_object(Bucket="models", Key=f"{place}/m/notes.txt", Body=b"somebody's")
    done = tensorkeep.push(model, url)

    assert set(done.sent) == bucket.names(f"{place}/m") - {"notes.txt"}
    assert {INDEX, "config.json"} < set(done.sent)
    assert tensorkeep.verify(url).is_whole
    assert np.array_equal(tensorkeep.load(url)["w3"], WEIGHTS["w3"])
    again = tensorkeep.push(model, url)
    assert (again.sent, set(again.unchanged)) == ({}, set(done.sent) - {INDEX})

    tensorkeep.save_checkpoint(changed(w0=1), model, max_shard_size="200KB")
    with pytest.raises(DestinationExistsError, match="--force"):
        tensorkeep.push(model, url)
    planned = tensorkeep.push(model, url, overwrite=True, dry_run=True)
    second = tensorkeep.push(model, url, overwrite=True)

    assert (planned.sent, planned.removed) == (second.sent, second.removed)
    assert (len(second.unchanged), len(second.removed)) == (2, 1)
    assert set(second.removed) < set(done.sent)
    assert bucket.names(f"{place}/m") == {*done.sent, *second.sent, "notes.txt"} - set(second.removed)
    assert np.array_equal(tensorkeep.load(url)["w0"], WEIGHTS["w0"] + 1)
    assert bucket.unfinished() == []


def test_a_single_file_is_one_object_and_replaces_shards_with_an_index(
    bucket: Bucket, place: str, model: Path, tmp_path: Path
) -> None:
    alone = tmp_path / "model.safetensors"
    tensorkeep.save(changed(w1=2), alone)

    assert list(tensorkeep.push(alone, bucket.at(f"{place}/alone/")).sent) == ["model.safetensors"]
    tensorkeep.push(model, bucket.at(f"{place}/m/"))
    done = tensorkeep.push(alone, bucket.at(f"{place}/m/"), overwrite=True)

    assert len(done.removed) == 2
    assert tensorkeep.verify(bucket.at(f"{place}/m/")).is_whole
    assert np.array_equal(tensorkeep.load(bucket.at(f"{place}/m/"))["w1"], WEIGHTS["w1"] + 2)


def test_a_push_that_another_overtakes_is_refused(bucket: Bucket, place: str, model: Path, tmp_path: Path) -> None:
    url = bucket.at(f"{place}/m/")
    tensorkeep.push(model, url)
    other = tmp_path / "other"
    tensorkeep.save_checkpoint(changed(w2=3), other, max_shard_size="200KB")
    tensorkeep.save_checkpoint(changed(w0=1), model, max_shard_size="200KB")
    swap = RemotePath.swap

    def overtaken(self: RemotePath, data: bytes, before: Any) -> None:
        with patch.object(RemotePath, "swap", swap):
            tensorkeep.push(other, url, overwrite=True)
        swap(self, data, before)

    with patch.object(RemotePath, "swap", overtaken), pytest.raises(SourceChangedError):
        tensorkeep.push(model, url, overwrite=True)

    assert tensorkeep.verify(url).is_whole
    assert np.array_equal(tensorkeep.load(url)["w2"], WEIGHTS["w2"] + 3)


def test_what_a_broken_push_sent_is_found_by_the_next(bucket: Bucket, place: str, model: Path) -> None:
    url = bucket.at(f"{place}/m/")
    with patch.object(RemotePath, "swap", side_effect=TransportError("gone")), pytest.raises(TransportError):
        tensorkeep.push(model, url)
    assert INDEX not in bucket.names(f"{place}/m")

    done = tensorkeep.push(model, url)

    assert (len(done.unchanged), list(done.sent)) == (3, [INDEX])
    assert tensorkeep.verify(url).is_whole


def test_file_systems_of_fsspec_and_shards_of_other_libraries(place: str, tmp_path: Path) -> None:
    url = f"memory://{place}"
    folder = tmp_path / "m"
    folder.mkdir()
    shards = {f"model-0000{n + 1}-of-00004.safetensors": {name: WEIGHTS[name]} for n, name in enumerate(WEIGHTS)}
    for file, tensors in shards.items():
        save_file(tensors, folder / file)
    weight_map = {name: file for file, tensors in shards.items() for name in tensors}
    folder.joinpath(INDEX).write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))

    for _ in range(2):
        tensorkeep.push(folder, url, overwrite=True)

    with tensorkeep.open(url) as published:
        assert np.array_equal(published["w2"][3:5], WEIGHTS["w2"][3:5])
        assert len(published.shards) == 4


def test_signed_names_stay_as_they_are(place: str, model: Path) -> None:
    model.joinpath("model.sig").write_text("{}")
    done = tensorkeep.push(model, f"memory://{place}")

    assert {path.name for path in model.iterdir()} - {"modeling.py"} == set(done.sent)
    assert tensorkeep.push(model, f"memory://{place}").sent == {}
    tensorkeep.save_checkpoint(changed(w0=1), model, max_shard_size="200KB")
    model.joinpath("model.sig").write_text("{}")
    with pytest.raises(UnsupportedError, match="another directory"):
        tensorkeep.push(model, f"memory://{place}", overwrite=True)


def test_an_encrypted_checkpoint_needs_no_key(place: str, tmp_path: Path) -> None:
    new_key(tmp_path / "key")
    key = Key.from_file(tmp_path / "key")
    for state in (WEIGHTS, changed(w0=1)):
        tensorkeep.save_checkpoint(state, tmp_path / "m", max_shard_size="200KB", encrypt=key)
        tensorkeep.push(tmp_path / "m", f"memory://{place}", overwrite=True)
        assert tensorkeep.push(tmp_path / "m", f"memory://{place}").sent == {}

    assert np.array_equal(tensorkeep.load(f"memory://{place}", key=key)["w0"], WEIGHTS["w0"] + 1)
    assert tensorkeep.verify(f"memory://{place}").is_whole
    with pytest.raises(UnsupportedError, match="new shards would not be"):
        tensorkeep.push(tmp_path / "m", f"memory://{place}/other", max_shard_size="1MB")


def test_a_checkpoint_with_patches(place: str, tmp_path: Path) -> None:
    url, store = f"memory://{place}", tensorkeep.CheckpointStore(tmp_path / "run", deltas=4)
    store.save(1, WEIGHTS)
    after = {name: weights.copy() for name, weights in WEIGHTS.items()}
    for step in (2, 3):
        after["w0"][0, step] += 1
        store.save(step, after)
    for _ in range(2):
        tensorkeep.push(store.path_of(2), url)
    assert tensorkeep.verify(url).is_whole

    with pytest.raises(UnsupportedError, match="another directory"):
        tensorkeep.push(store.path_of(3), url, overwrite=True)
    with pytest.raises(UnsupportedError, match="with patches"):
        tensorkeep.push(store.path_of(1), url, overwrite=True)
    tensorkeep.push(store.path_of(3), f"{url}/whole", max_shard_size="200KB")
    assert np.array_equal(tensorkeep.load(f"{url}/whole")["w0"], after["w0"])


def test_damage_that_was_published_unchecked_is_mended_by_the_next_push(place: str, model: Path) -> None:
    url, shard = f"memory://{place}", sorted(model.glob("*.safetensors"))[0]
    whole = shard.read_bytes()
    shard.write_bytes(whole[:-1] + b"!")
    tensorkeep.push(model, url, verify=False)
    assert not tensorkeep.verify(url).is_whole

    shard.write_bytes(whole)
    tensorkeep.push(model, url, overwrite=True)
    assert tensorkeep.verify(url).is_whole


def test_one_file_is_replaced_by_shards_only_if_asked(place: str, model: Path, tmp_path: Path) -> None:
    url, alone = f"memory://{place}", tmp_path / "model.safetensors"
    tensorkeep.save(changed(w1=2), alone)
    tensorkeep.push(alone, url)
    assert tensorkeep.push(alone, url).unchanged == ("model.safetensors",)
    with pytest.raises(DestinationExistsError, match=r"model\.safetensors"):
        tensorkeep.push(model, url)

    assert tensorkeep.push(model, url, overwrite=True).removed == ("model.safetensors",)
    assert tensorkeep.verify(url).is_whole
    tensorkeep.save_checkpoint({name: WEIGHTS[name] for name in ("w0", "w1")}, model, max_shard_size="200KB")
    with pytest.raises(DestinationExistsError):
        tensorkeep.push(model, url)


@pytest.mark.parametrize("where", ["memory", "file", "s3"])
def test_killed_anywhere_readers_have_the_old_or_the_new(
    where: str, bucket: Bucket, place: str, tmp_path: Path
) -> None:
    url = {"memory": f"memory://{place}", "file": f"file://{tmp_path}/there", "s3": bucket.at(f"{place}/m/")}[where]

    push_killed_everywhere(url, tmp_path)


def test_what_another_push_needs_again_is_not_removed(place: str, model: Path, tmp_path: Path) -> None:
    url, old = f"memory://{place}", tmp_path / "old"
    tensorkeep.save_checkpoint(WEIGHTS, old, max_shard_size="200KB")
    tensorkeep.push(old, url)
    tensorkeep.save_checkpoint(changed(w0=1), model, max_shard_size="200KB")
    swap = RemotePath.swap

    def followed(self: RemotePath, data: bytes, before: Any) -> None:
        swap(self, data, before)
        with patch.object(RemotePath, "swap", swap):
            tensorkeep.push(old, url, overwrite=True)

    with patch.object(RemotePath, "swap", followed):
        tensorkeep.push(model, url, overwrite=True)

    assert tensorkeep.verify(url).is_whole
    assert np.array_equal(tensorkeep.load(url)["w0"], WEIGHTS["w0"])


def test_digests_of_blocks_keep_the_names_of_their_files(bucket: Bucket, place: str, model: Path) -> None:
    url = bucket.at(f"{place}/m/")
    tensorkeep.add_block_digests(model)
    tensorkeep.push(model, url)
    shards = {name for name in bucket.names(f"{place}/m") if name.endswith(".safetensors")}
    assert {f"{name}.blocks" for name in shards} < bucket.names(f"{place}/m")
    with tensorkeep.open(url, verify=True) as published:
        assert np.array_equal(published["w2"][3:5], WEIGHTS["w2"][3:5])

    tensorkeep.save_checkpoint(changed(w0=1, w2=1), model, max_shard_size="200KB")
    tensorkeep.push(model, url, overwrite=True)
    assert not [name for name in bucket.names(f"{place}/m") if name.endswith(".blocks")]
    assert tensorkeep.verify(url).is_whole


def test_what_cannot_be_published_there(model: Path, tmp_path: Path) -> None:
    with tensorkeep.checkpoint.save_folder(tmp_path / "run") as staging:
        tensorkeep.save(WEIGHTS, f"{staging}/state.safetensors")
    with pytest.raises(UnsupportedError, match="manifest"):
        tensorkeep.push(tmp_path / "run", "memory://run")
    for destination in (str(tmp_path / "copy"), "https://example.org/model/"):
        with pytest.raises(UnsupportedError):
            tensorkeep.push(model, destination)
    with pytest.raises(UnsupportedError, match="fetch"):
        tensorkeep.push("memory://run", "memory://copy")

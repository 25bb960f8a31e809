"""Files that Keras writes: every weight under the name that Keras gives its layer, bit for bit, and nothing built."""

from __future__ import annotations

import json
import shutil
import zipfile
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

import tensorkeep
from tensorkeep.errors import FormatError, IntegrityError, SourceMissingError, TensorkeepError, UnsafeError
from tests.support.formats.keras_files import weights_by_keras, written_by_keras
from tests.support.remote.fault_server import FaultServer

MODELS = [
    *("trained.keras", "trained.weights.h5", "recurrent.keras", "recurrent.weights.h5", "quantized.keras"),
    *("quantized.weights.h5", "sharded.weights.json", "legacy.h5"),
]


@pytest.fixture
def folder() -> Path:
    """A folder with models that Keras wrote, and what it says their weights are."""
    return written_by_keras()


def plain(array: Any) -> Any:
    return array.view(np.uint16) if array.dtype.name == "bfloat16" else array


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("backend", ["mmap", "pread"])
def test_every_weight_has_the_name_of_its_layer(name: str, backend: Any, folder: Path) -> None:
    weights = weights_by_keras(name)

    with tensorkeep.open(folder / name, backend=backend) as opened:
        assert sorted(opened) == sorted(weights)
        assert dict(opened.unknowns) == {}
        for path, weight in weights.items():
            found = plain(opened[path].load())
            assert (found.dtype, found.shape) == (weight.dtype, weight.shape)
            assert found.tobytes() == weight.tobytes()
            assert np.array_equal(
                plain(opened[path][..., ::2] if weight.ndim else opened[path][...]),
                weight[..., ::2] if weight.ndim else weight,
            )


@pytest.mark.parametrize("name", MODELS)
def test_a_conversion_has_all_weights_and_the_model_as_text(name: str, folder: Path, tmp_path: Path) -> None:
    done = tensorkeep.convert(folder / name, tmp_path / "a.safetensors")

    assert done.left_out == {}
    assert tensorkeep.diff(folder / name, tmp_path / "a.safetensors").is_equal
    metadata = tensorkeep.open(tmp_path / "a.safetensors").metadata
    if name.endswith(".keras"):
        assert json.loads(metadata["config.json"])["class_name"] in {"Functional", "Sequential"}
        assert json.loads(metadata["metadata.json"])["keras_version"]
    if name == "legacy.h5":
        assert json.loads(metadata["model_config"])["class_name"] == "Sequential"


def test_weights_in_an_archive_are_mapped(folder: Path) -> None:
    with tensorkeep.open(folder / "trained.keras", backend="mmap") as opened:
        lazy = opened["layers/first dense/vars/0"]
        content = (folder / "trained.keras").read_bytes()
        assert lazy.span is not None
        assert content[lazy.span.start : lazy.span.stop] == lazy.load().tobytes()
        assert lazy.view() is not None


def test_an_archive_is_read_from_bytes_and_when_deflated(folder: Path, tmp_path: Path) -> None:
    weights = weights_by_keras("trained.keras")
    deflated = tmp_path / "deflated.keras"
    with (
        zipfile.ZipFile(folder / "trained.keras") as old,
        zipfile.ZipFile(deflated, "w", zipfile.ZIP_DEFLATED) as new,
    ):
        for name in old.namelist():
            new.writestr(name, old.read(name))

    for target in (deflated, deflated.read_bytes(), (folder / "trained.keras").read_bytes()):
        with tensorkeep.open(target) as opened:
            assert {name: plain(tensor).tobytes() for name, tensor in opened.load().items()} == {
                name: weight.tobytes() for name, weight in weights.items()
            }
    assert tensorkeep.verify(deflated).is_whole


def test_files_of_layers_are_said_to_be_left_out(folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "a.keras"
    shutil.copy(folder / "recurrent.keras", path)
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("assets/layers/lookup/vocabulary.txt", "a\nb")

    with tensorkeep.open(path) as opened:
        assert list(opened.unknowns) == ["assets/layers/lookup/vocabulary.txt"]
    with pytest.raises(UnsafeError, match="vocabulary"):
        tensorkeep.convert(path, tmp_path / "a.safetensors")
    assert tensorkeep.convert(path, tmp_path / "a.safetensors", drop_unknown=True).left_out


@pytest.mark.parametrize("members", [{"metadata.json": "{}"}, {"config.json": b"\xff", "model.weights.h5": b""}])
def test_archives_without_readable_weights_are_refused(members: Any, tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.keras", "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)

    with pytest.raises(FormatError):
        tensorkeep.open(tmp_path / "a.keras")


def test_an_archive_that_was_cut_off_or_changed_gives_our_errors(folder: Path, tmp_path: Path) -> None:
    content = (folder / "recurrent.keras").read_bytes()
    path = tmp_path / "a.keras"
    for place in range(0, len(content), 997):
        for changed in (content[:place], content[:place] + bytes([content[place] ^ 0x81]) + content[place + 1 :]):
            path.write_bytes(changed)
            try:
                tensorkeep.open(path).load()
            except TensorkeepError:
                continue


@pytest.fixture
def shards(folder: Path, tmp_path: Path) -> Path:
    for path in folder.glob("sharded*"):
        shutil.copy(path, tmp_path)
    return tmp_path / "sharded.weights.json"


def test_shards_are_fetched(shards: Path, tmp_path: Path) -> None:
    files = {path.name: path.read_bytes() for path in shards.parent.glob("sharded*") if path.suffix != ".npz"}
    with FaultServer(files) as server:
        there = tensorkeep.fetch(f"{server.url}{shards.name}", tmp_path / "fetched")

    assert tensorkeep.diff(there, shards).is_equal


def test_a_missing_shard_is_named(shards: Path) -> None:
    (shards.parent / "sharded_00001.weights.h5").unlink()

    with pytest.raises(SourceMissingError, match="sharded_00001"):
        tensorkeep.open(shards)


def test_a_shard_of_another_save_is_refused(shards: Path, folder: Path) -> None:
    shutil.copy(folder / "recurrent.weights.h5", shards.parent / "sharded_00001.weights.h5")

    with pytest.raises(IntegrityError, match="do not agree"):
        tensorkeep.open(shards)


def test_shards_are_fetched_and_read_from_a_server(shards: Path, folder: Path, tmp_path: Path) -> None:
    files = {path.name: path.read_bytes() for path in shards.parent.glob("sharded*")}
    with FaultServer(files) as server:
        with tensorkeep.open(server.url + shards.name) as opened:
            assert sorted(opened) == sorted(weights_by_keras("sharded.weights.json"))
            assert opened["layers/lstm_1/lstm_cell/vars/1"][1:3].shape == (2, 16)
            assert len(server.requests) <= 8
        tensorkeep.fetch(server.url + shards.name, tmp_path / "fetched")
    assert {path.name for path in (tmp_path / "fetched").iterdir()} >= {
        n for n in files if n.endswith((".h5", ".json"))
    }


def test_on_a_server_an_archive_takes_few_requests(folder: Path) -> None:
    with FaultServer({"a.keras": (folder / "trained.keras").read_bytes()}) as server:
        with tensorkeep.open(server.url + "a.keras") as opened:
            assert opened["layers/first dense/vars/0"][1].shape == (4,)
        assert len(server.requests) <= 6


def transformers_files(directory: Path) -> dict[str, Any]:
    """Write shards as transformers did: without the first part of names, which the index has."""
    weights = {
        "tf_bert_model/bert/embeddings/weight:0": np.ones((3, 4), np.float32),
        "tf_bert_model/bert/pooler/bias:0": np.arange(5, dtype=np.float16),
        "single": np.zeros(2),
    }
    files = dict(zip(weights, ("tf_model-00001-of-00002.h5", *["tf_model-00002-of-00002.h5"] * 2), strict=True))
    for name, weight in weights.items():
        with h5py.File(directory / files[name], "a") as file:
            file[name.partition("/")[2] or name] = weight
            file.attrs["layer_names"] = [name]
    (directory / "tf_model.h5.index.json").write_text(json.dumps({"metadata": {}, "weight_map": files}))
    return {name.partition("/")[2] or name: weight for name, weight in weights.items()}


def test_shards_of_transformers_are_one_checkpoint(tmp_path: Path) -> None:
    weights = transformers_files(tmp_path)

    for path in (tmp_path, tmp_path / "tf_model.h5.index.json"):
        loaded = tensorkeep.load(path)
        assert {name: tensor.tobytes() for name, tensor in loaded.items()} == {
            name: weight.tobytes() for name, weight in weights.items()
        }
    with h5py.File(tmp_path / "tf_model-00001-of-00002.h5", "a") as file:
        file["single"] = np.zeros(2)
    with pytest.raises(IntegrityError, match="`single`"):
        tensorkeep.open(tmp_path)


def test_a_weight_with_two_names_in_a_shard_is_stored_once(tmp_path: Path) -> None:
    transformers_files(tmp_path)
    with h5py.File(tmp_path / "tf_model-00002-of-00002.h5", "a") as file:
        file["tied"] = file["single"]
    index = json.loads((tmp_path / "tf_model.h5.index.json").read_text())
    index["weight_map"]["tied"] = "tf_model-00002-of-00002.h5"
    (tmp_path / "tf_model.h5.index.json").write_text(json.dumps(index))

    done = tensorkeep.convert(tmp_path, tmp_path / "converted")

    assert done.ties in ({"tied": "single"}, {"single": "tied"})
    assert tensorkeep.diff(tmp_path, tmp_path / "converted").is_equal


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("other", "`other` is in no shard"),
        ("a/single", "`a/single` is in no shard"),
        ("single", "not in tf_model-00001"),
    ],
)
def test_an_index_of_transformers_that_disagrees_with_its_shards_is_refused(
    name: str, message: str, tmp_path: Path
) -> None:
    transformers_files(tmp_path)
    index = json.loads((tmp_path / "tf_model.h5.index.json").read_text())
    index["weight_map"][name] = "tf_model-00001-of-00002.h5"
    (tmp_path / "tf_model.h5.index.json").write_text(json.dumps(index))

    with pytest.raises(IntegrityError, match=message):
        tensorkeep.open(tmp_path)


def test_two_names_of_an_index_are_not_one_tensor(tmp_path: Path) -> None:
    transformers_files(tmp_path)
    index = json.loads((tmp_path / "tf_model.h5.index.json").read_text())
    index["weight_map"]["other/bert/pooler/bias:0"] = "tf_model-00002-of-00002.h5"
    (tmp_path / "tf_model.h5.index.json").write_text(json.dumps(index))

    with pytest.raises(IntegrityError, match=r"`other/bert/pooler/bias:0` is in no shard"):
        tensorkeep.open(tmp_path)


def test_shards_give_what_each_of_them_says(tmp_path: Path) -> None:
    transformers_files(tmp_path)
    with h5py.File(tmp_path / "tf_model-00002-of-00002.h5", "a") as file:
        file["vocabulary"] = ["a", "bc"]
        file.create_dataset("packed", data=np.arange(4000), chunks=(500,), compression="gzip")
        file.attrs["backend"] = "tensorflow"
    index = json.loads((tmp_path / "tf_model.h5.index.json").read_text())
    index["weight_map"]["packed"] = "tf_model-00002-of-00002.h5"
    (tmp_path / "tf_model.h5.index.json").write_text(json.dumps(index))

    with tensorkeep.open(tmp_path) as opened:
        assert "vocabulary" in {**opened.unknowns, **opened.strings}
        assert opened.metadata["backend"] == "tensorflow"
        assert opened["packed"][1000:1003].tolist() == [1000, 1001, 1002]
    done = tensorkeep.convert(tmp_path, tmp_path / "converted", drop_unknown=True)
    assert list(done.left_out) == ["vocabulary"]
    assert np.array_equal(tensorkeep.load(tmp_path / "converted")["packed"], np.arange(4000))
    assert tensorkeep.open(tmp_path / "converted").metadata["backend"] == "tensorflow"


def test_weights_of_keras_2_have_their_own_names(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "old.h5", "w") as file:
        file.attrs["layer_names"] = [b"dense", b"tower"]
        file["dense/dense/kernel:0"] = np.ones(2)
        file["tower/dense_1/kernel:0"] = np.zeros(3)

    assert sorted(tensorkeep.open(tmp_path / "old.h5")) == ["dense/kernel:0", "dense_1/kernel:0"]


def test_other_files_of_hdf5_keep_their_names(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "other.h5", "w") as file:
        file["group/group/data"] = np.ones(2)

    assert list(tensorkeep.open(tmp_path / "other.h5")) == ["group/group/data"]


@pytest.mark.parametrize("name", ["trained.keras", "recurrent.keras", "quantized.keras"])
def test_a_model_of_keras_own_layers_is_clean(name: str, folder: Path) -> None:
    report = tensorkeep.scan(folder / name)

    assert [finding.message for file in report.files for finding in file.findings] == []


@pytest.mark.parametrize("name", ["lambda.keras", "lambda.h5"])
def test_a_lambda_layer_is_reported_and_its_weights_are_read(name: str, folder: Path) -> None:
    messages = [finding.message for file in tensorkeep.scan(folder / name).files for finding in file.findings]

    assert "a Lambda layer of Keras is built from Python code in the file" in messages
    assert len(tensorkeep.open(folder / name)) == 2

"""Archives of Keras, and shards of HDF5 with an index, keep the contract of kinds."""

from __future__ import annotations

import json
import shutil
import zipfile
from pathlib import Path
from typing import Any

import h5py
import pytest

import tensorkeep
from tests.contracts.kind import Arrays, KindContract, flip
from tests.support.formats.keras_files import weights_by_keras, written_by_keras


def write_weights(target: Any, arrays: Arrays) -> None:
    with h5py.File(target, "w") as file:
        for name, array in arrays.items():
            file[name] = array


class TestKerasArchives(KindContract):
    def save(self, arrays: Arrays, directory: Path) -> Path:
        write_weights(directory / "model.weights.h5", arrays)
        with zipfile.ZipFile(directory / "model.keras", "w") as archive:
            archive.writestr("metadata.json", '{"keras_version": "3.15.1"}')
            archive.writestr("config.json", '{"module": "keras", "class_name": "Sequential", "config": {}}')
            archive.write(directory / "model.weights.h5", "model.weights.h5")
        (directory / "model.weights.h5").unlink()
        return directory / "model.keras"

    def test_a_changed_byte_is_found(self, path: Path) -> None:
        before = tensorkeep.verify(path)
        assert before.is_whole
        assert before.n_checked == len(tensorkeep.open(path))
        with tensorkeep.open(path) as opened:
            span = opened["layers.1.weight"].span
        assert span is not None
        flip(path, span.start)

        after = tensorkeep.verify(path)

        assert [finding.kind for finding in after.findings] == ["data"]
        with pytest.raises(tensorkeep.errors.IntegrityError):
            tensorkeep.open(path, verify=True)


class TestSetsOfHdf5(KindContract):
    has_checksums = False

    def save(self, arrays: Arrays, directory: Path) -> Path:
        files = {name: f"tf_model-0000{1 + (name == 'bias')}-of-00002.h5" for name in arrays}
        for file in set(files.values()):
            write_weights(directory / file, {name: array for name, array in arrays.items() if files[name] == file})
        index = directory / "tf_model.h5.index.json"
        index.write_text(json.dumps({"metadata": {}, "weight_map": files}))
        return index


class TestShardsByKeras(KindContract):
    one = "layers/two/vars/1"
    two = "layers/one/vars/0"
    some = "layers/one/*"
    has_checksums = False

    @property
    def arrays(self) -> Arrays:  # type: ignore[override]
        """The weights, as Keras says they are."""
        return weights_by_keras("plain.weights.json")

    def save(self, arrays: Arrays, directory: Path) -> Path:
        for file in written_by_keras().glob("plain*"):
            if file.suffix != ".npz":
                shutil.copy(file, directory)
        assert len(list(directory.iterdir())) > 2
        return directory / "plain.weights.json"

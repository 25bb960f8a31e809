"""A scan of an index covers the files that it names, as loading it would."""

from __future__ import annotations

import json
import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from flax import serialization

import tensorkeep
from tensorkeep.errors import SourceMissingError


class Payload:
    def __reduce__(self) -> Any:
        return os.system, ("exit 1",)


def index_of(path: Path, weight_map: dict[str, str]) -> Path:
    path.write_text(json.dumps({"metadata": {"total_size": 1}, "weight_map": weight_map}))
    return path


def test_shards_of_pickles(tmp_path: Path) -> None:
    torch.save({"a": torch.ones(2)}, tmp_path / "good.bin")
    (tmp_path / "evil.bin").write_bytes(pickle.dumps(Payload()))
    index = index_of(tmp_path / "pytorch_model.bin.index.json", {"a": "good.bin", "b": "evil.bin"})

    report = tensorkeep.scan(index)

    assert {Path(file.path).name: file.verdict for file in report.files} == {
        "good.bin": "clean",
        "evil.bin": "dangerous",
    }


def test_shards_of_safetensors_and_flax(tmp_path: Path) -> None:
    tensorkeep.save_checkpoint({"a": np.ones(20), "b": np.ones(20)}, tmp_path, max_shard_size="200B")
    (tmp_path / "flax.msgpack").write_bytes(serialization.msgpack_serialize({"a": np.ones(2)}))
    flax = index_of(tmp_path / "flax_model.msgpack.index.json", {"a": "flax.msgpack"})

    ours = tensorkeep.scan(tmp_path / "model.safetensors.index.json")
    theirs = tensorkeep.scan(flax)

    assert ours.is_clean
    assert len(ours.files) == 2
    assert theirs.is_clean
    assert [Path(file.path).name for file in theirs.files] == ["flax.msgpack"]


def test_a_missing_shard_cannot_be_read(tmp_path: Path) -> None:
    report = tensorkeep.scan(index_of(tmp_path / "tf_model.h5.index.json", {"a": "tf_model-00001-of-00002.h5"}))

    assert [file.verdict for file in report.files] == ["unreadable"]


@pytest.mark.parametrize("name", ["../a.bin", "/etc/passwd", ""])
def test_an_index_that_names_files_elsewhere_is_not_followed(name: str, tmp_path: Path) -> None:
    index = index_of(tmp_path / "pytorch_model.bin.index.json", {"a": name})

    report = tensorkeep.scan(index)

    assert [file.path for file in report.files] == [str(index)]
    assert not report.is_clean


def test_a_tensorflow_checkpoint_by_the_beginning_of_its_names(tmp_path: Path) -> None:
    tensorkeep.save({"w": np.ones(3)}, tmp_path / "a.safetensors")
    tensorkeep.export(tmp_path / "a.safetensors", tmp_path / "ckpt-5.index")

    report = tensorkeep.scan(tmp_path / "ckpt-5")

    assert report.is_clean
    assert [Path(file.path).name for file in report.files] == ["ckpt-5.data-00000-of-00001", "ckpt-5.index"]
    with pytest.raises(SourceMissingError):
        tensorkeep.scan(tmp_path / "ckpt")


def test_a_broken_tensorflow_checkpoint_is_not_clean(tmp_path: Path) -> None:
    (tmp_path / "ckpt-7.index").write_bytes(b"")

    assert [file.verdict for file in tensorkeep.scan(tmp_path / "ckpt-7").files] == ["unreadable"]


def test_an_index_that_is_no_text_names_no_files(tmp_path: Path) -> None:
    index = tmp_path / "flax_model.msgpack.index.json"
    index.write_bytes(b'{"\x88": 1}')

    report = tensorkeep.scan(index)

    assert [file.path for file in report.files] == [str(index)]

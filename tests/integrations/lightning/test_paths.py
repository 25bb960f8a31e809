"""Where checkpoints are, and where their tensors go."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import obstore.fsspec
import pytest
import torch

import tensorkeep
from tensorkeep.errors import SourceMissingError, UnsupportedError
from tensorkeep.integrations.lightning import AsyncTensorkeepCheckpointIO, TensorkeepCheckpointIO
from tensorkeep.torch import save_file
from tests.support.integrations.lightning.runs import files, fit
from tests.support.remote.s3_bucket import Bucket

plugins = pytest.mark.parametrize("plugin", [TensorkeepCheckpointIO, AsyncTensorkeepCheckpointIO])


@plugins
@pytest.mark.parametrize("name", ["x", "x.ckpt", "x.pt", "x.safetensors", "deep/er/x.ckpt", "with space é.ckpt"])
def test_the_name_does_not_matter(tmp_path: Path, plugin: Any, name: str) -> None:
    made = plugin()
    made.save_checkpoint({"epoch": 1, "w": torch.ones(2)}, str(tmp_path / name))

    assert made.load_checkpoint(tmp_path / name)["epoch"] == 1
    assert made.load_checkpoint(f"file://{tmp_path / name}")["epoch"] == 1
    made.remove_checkpoint(tmp_path / name)
    assert not (tmp_path / name).exists()
    made.remove_checkpoint(tmp_path / name)


def test_the_directory_of_the_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    io = TensorkeepCheckpointIO()
    io.save_checkpoint({"epoch": 1}, "~/runs/x.ckpt")

    assert (tmp_path / "runs" / "x.ckpt").exists()
    assert io.load_checkpoint("~/runs/x.ckpt") == {"epoch": 1}
    io.remove_checkpoint("~/runs/x.ckpt")
    assert files(tmp_path / "runs") == []


@plugins
def test_servers_that_cannot_be_written_to_are_refused(plugin: Any) -> None:
    with pytest.raises(UnsupportedError, match="cannot be written to"):
        plugin().save_checkpoint({"a": 1}, "https://host/a.ckpt")


@plugins
def test_a_run_in_a_bucket(tmp_path: Path, plugin: Any) -> None:
    url = f"memory://{tmp_path.name}/{plugin.__name__}"
    files = fsspec.filesystem("memory")
    try:
        first = fit(url, plugin())
        resumed = fit(url, plugin(), ckpt_path=f"{url}/last.ckpt", max_epochs=first.max_epochs + 1)

        assert resumed.current_epoch == first.max_epochs + 1
        assert [name.rpartition("/")[2] for name in files.ls(url, detail=False)][-1] == "last.ckpt"
        assert len(files.ls(url)) == 2
        assert tensorkeep.verify(f"{url}/last.ckpt").is_whole
    finally:
        files.store.clear()


def test_a_run_in_a_bucket_of_s3(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lightning itself looks at directories by fsspec, for which obstore has a file system."""
    obstore.fsspec.register("s3")
    try:
        with Bucket.served() as bucket:
            for name, value in bucket.environment.items():
                monkeypatch.setenv(name, value)
            ends = []
            for place in ("s3://models/run", str(tmp_path)):
                np.random.seed(0)
                first = fit(place)
                ends.append(fit(place, ckpt_path=f"{place}/last.ckpt", max_epochs=first.max_epochs + 1))

            assert bucket.names("run") == {"epoch=2-step=18.ckpt", "last.ckpt"}
            for one, other in zip(*(end.model.parameters() for end in ends), strict=True):
                assert torch.equal(one, other)
            assert tensorkeep.verify("s3://models/run/last.ckpt").is_whole
    finally:
        sys.modules["fsspec.registry"]._registry.pop("s3")


def test_a_directory_is_removed(tmp_path: Path) -> None:
    (tmp_path / "sharded.ckpt").mkdir()
    (tmp_path / "sharded.ckpt" / "part").write_bytes(b"x")
    (tmp_path / "link.ckpt").symlink_to("sharded.ckpt")

    TensorkeepCheckpointIO().remove_checkpoint(tmp_path / "link.ckpt")
    assert files(tmp_path) == ["sharded.ckpt"]
    TensorkeepCheckpointIO().remove_checkpoint(tmp_path / "sharded.ckpt")
    assert files(tmp_path) == []


@plugins
def test_there_are_no_storage_options(tmp_path: Path, plugin: Any) -> None:
    made = fit(tmp_path, plugin())

    with pytest.raises(TypeError, match="storage_options"):
        made.save_checkpoint(tmp_path / "x.ckpt", storage_options={"a": 1})
    assert "x.ckpt" not in files(tmp_path)


def test_nothing_at_the_path(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        TensorkeepCheckpointIO().load_checkpoint(tmp_path / "none.ckpt")
    with pytest.raises(SourceMissingError):
        fit(tmp_path, ckpt_path=tmp_path / "none.ckpt")


@pytest.mark.parametrize("map_location", [None, "cpu", torch.device("cpu"), {"cuda:0": "cpu"}, {"cpu": "meta"}])
def test_where_tensors_go(tmp_path: Path, map_location: Any) -> None:
    io = TensorkeepCheckpointIO()
    io.save_checkpoint({"w": torch.ones(2)}, tmp_path / "a.ckpt")
    expected = "meta" if map_location == {"cpu": "meta"} else "cpu"

    assert io.load_checkpoint(tmp_path / "a.ckpt", map_location)["w"].device.type == expected


@pytest.mark.parametrize("target", ["cpu", None])
def test_a_function_says_where_tensors_go(tmp_path: Path, target: str | None) -> None:
    io = TensorkeepCheckpointIO()
    io.save_checkpoint({"w": torch.ones(2)}, tmp_path / "a.ckpt")
    asked = []

    def locate(storage: Any, location: str) -> Any:
        asked.append(location)
        return None if target is None else storage.to(device=target)

    assert io.load_checkpoint(tmp_path / "a.ckpt", locate)["w"].equal(torch.ones(2))
    assert asked == ["cpu"]


def test_a_file_without_digests_is_refused_unless_told_otherwise(tmp_path: Path) -> None:
    save_file({"weight": torch.ones(2)}, tmp_path / "x.safetensors")

    with pytest.raises(UnsupportedError, match="no digests"):
        TensorkeepCheckpointIO().load_checkpoint(tmp_path / "x.safetensors")
    loaded = TensorkeepCheckpointIO(verify=False).load_checkpoint(tmp_path / "x.safetensors")
    assert loaded["weight"].equal(torch.ones(2))

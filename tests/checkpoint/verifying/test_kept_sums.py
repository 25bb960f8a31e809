"""SHA-256 that somebody else keeps: the Hub, pointers of Git LFS, and what huggingface_hub leaves on the disk."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import huggingface_hub
import numpy as np
import pytest
from safetensors.numpy import save_file

import tensorkeep
from tensorkeep import remote
from tensorkeep.cli import main
from tensorkeep.errors import IntegrityError, SelectionError
from tests.support.remote.hub_server import HubServer

WEIGHTS = {f"w{n}": np.random.default_rng(n).standard_normal((100, 200), np.float32) for n in range(4)}
SECOND = "model-00002-of-00002.safetensors"


@pytest.fixture(autouse=True)
def online(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_DISABLE_XET", True)


@pytest.fixture
def ours(tmp_path: Path) -> Path:
    folder = tmp_path / "ours"
    tensorkeep.save_checkpoint(WEIGHTS, folder, max_shard_size="200KB", sha256=True)
    return folder


@pytest.fixture
def theirs(tmp_path: Path) -> Path:
    """A model without any digests."""
    folder = tmp_path / "theirs"
    folder.mkdir()
    save_file(WEIGHTS, folder / "model.safetensors")
    return folder


@pytest.fixture
def hub() -> Iterator[HubServer]:
    with HubServer("org/model", {}) as running:
        yield running


def published(hub: HubServer, folder: Path) -> Any:
    hub.add("org/model", "main", {path.name: path.read_bytes() for path in folder.iterdir()})
    hub.requests.clear()
    return remote("hf://org/model", endpoint=hub.url, pause_s=0.001, attempts=2, head_nbytes=2**14)


def flip(path: Path) -> None:
    """Change a byte, as a disk does: nothing else shows it."""
    status = path.stat()
    content = bytearray(path.read_bytes())
    content[-5] ^= 1
    path.write_bytes(content)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def pointer_to(path: Path) -> str:
    sha256, nbytes = tensorkeep.checkpoint.sha256_of(tensorkeep.transport.open_source(str(path))), path.stat().st_size
    return f"version https://git-lfs.github.com/spec/v1\noid sha256:{sha256}\nsize {nbytes}\n"


def test_the_hub_is_asked_before_any_data_is_read(hub: HubServer, ours: Path) -> None:
    url = published(hub, ours)
    done = tensorkeep.verify(url, quick=True)

    assert done.is_whole
    assert (done.n_kept, done.n_checked, done.nbytes_checked) == (2, 0, 0)
    assert {span for _, path, span in hub.requests if path.startswith("/cdn/")} == {"bytes=0-16383"}

    flip(ours / SECOND)
    url = published(hub, ours)
    for options in ({}, {"quick": True}):
        found = [each for each in tensorkeep.verify(url, **options).findings if each.shard == SECOND]
        assert [each.kind for each in found] == ["sha256"]
        assert "the server has another file" in found[0].message
    with pytest.raises(IntegrityError, match="SHA-256"):
        tensorkeep.open(url)


def test_a_model_without_digests_is_whole_by_what_the_hub_keeps(hub: HubServer, theirs: Path, tmp_path: Path) -> None:
    url = published(hub, theirs)

    assert (tensorkeep.verify(url).n_sha256, tensorkeep.verify(url).is_whole) == (1, True)
    assert not tensorkeep.verify(url, quick=True).is_whole, "nothing to compare with"

    fetched = tmp_path / "fetched"
    tensorkeep.fetch(url, fetched)
    done = tensorkeep.verify(fetched)
    if os.path.isfile(fetched / "model.safetensors") and tensorkeep.transport.get_xattr_note(
        str(fetched / "model.safetensors")
    ):
        assert (done.is_whole, done.n_checked, done.n_sha256) == (True, 4, 1)
        flip(fetched / "model.safetensors")
        assert [each.kind for each in tensorkeep.verify(fetched).findings] == ["sha256"]


@pytest.mark.parametrize("into", ["a directory", "the cache"])
def test_downloads_of_huggingface_hub(hub: HubServer, theirs: Path, tmp_path: Path, into: str) -> None:
    tensorkeep.convert(theirs / "model.safetensors", tmp_path / "copy")
    np.savez(theirs / "arrays.npz", **WEIGHTS)
    published(hub, theirs)
    place: dict[str, Any] = {"local_dir" if into == "a directory" else "cache_dir": tmp_path / "down"}
    folder = Path(huggingface_hub.snapshot_download("org/model", endpoint=hub.url, token=False, **place))

    assert tensorkeep.verify(folder / "arrays.npz").is_whole
    done = tensorkeep.verify(folder / "model.safetensors")
    assert (done.is_whole, done.n_sha256) == (True, 1)
    assert main(["verify", str(folder)]) == 0

    flip((folder / "model.safetensors").resolve())
    assert [each.kind for each in tensorkeep.verify(folder).findings] == ["sha256"]

    if into == "a directory":  # what somebody writes there is no download any more
        os.utime(folder / "model.safetensors")
        os.utime(folder / "model.safetensors", (2**32, 2**32))
        assert tensorkeep.verify(folder).n_unprotected == 4


def test_pointers_of_git_lfs(ours: Path, capsys: pytest.CaptureFixture[str]) -> None:
    whole = shutil.copytree(ours, ours.parent / "whole")
    for path in ours.glob("*.safetensors"):
        path.write_text(pointer_to(path))

    assert [each.kind for each in tensorkeep.verify(ours).findings] == ["pointer", "pointer"]
    assert tensorkeep.verify(ours, quick=True).n_kept == 2
    assert main(["verify", str(ours), "--quick"]) == 0
    assert capsys.readouterr().out == "as recorded: 2 files, by the SHA-256 kept elsewhere; no data was read\n"
    assert main(["verify", str(ours)]) == 1
    assert "git lfs pull" in capsys.readouterr().out

    ours.joinpath(SECOND).write_text(pointer_to(whole / "model-00001-of-00002.safetensors"))
    assert main(["verify", str(ours), "--quick"]) == 1
    assert "a Git LFS pointer to another file" in capsys.readouterr().out

    assert main(["verify", str(whole), "--quick"]) == 2
    assert "nobody else keeps one" in capsys.readouterr().out


def test_quick_is_about_whole_files(ours: Path) -> None:
    with pytest.raises(SelectionError):
        tensorkeep.verify(ours, quick=True, names=["w1"])


@pytest.mark.parametrize(
    "metadata", [b"", b"x\n" * 3, b"\xff\n\n\n", b"0" * 10_000, b"a\n" + b"0" * 64 + b"\nnan\n", b"a\n" + b"0" * 64]
)
def test_metadata_that_is_none(theirs: Path, metadata: bytes) -> None:
    folder = theirs / ".cache" / "huggingface" / "download"
    folder.mkdir(parents=True)
    folder.joinpath("model.safetensors.metadata").write_bytes(metadata)

    assert tensorkeep.verify(theirs).n_unprotected == 4

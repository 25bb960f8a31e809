"""Checkpoints with a file for each chunk, on servers that list nothing and in stores that list everything."""

from __future__ import annotations

import pickle
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pytest

import tensorkeep
from tensorkeep.errors import FormatError, IntegrityError, LimitError, UnsupportedError
from tensorkeep.formats import zarr
from tests.support.formats.orbax_files import files_at, write_zarr
from tests.support.remote.fault_server import FaultServer

N_ARRAYS = 9
FORMS = pytest.mark.parametrize("form", ["files-2", "files-3"])


@pytest.fixture
def stored() -> Iterator[Any]:
    """A function that copies a directory to a store, and returns its URL."""
    root = "/served"
    store = fsspec.filesystem("memory")

    def put(directory: Path) -> str:
        store.put(str(directory), f"{root}/step", recursive=True)
        return f"memory:/{root}/step"

    yield put
    if store.exists(root):
        store.rm(root, recursive=True)


def assert_same(opened: Any, directory: Path) -> None:
    with tensorkeep.open(directory) as expected:
        assert opened.keys() == expected.keys()
        for name, lazy in expected.items():
            assert np.array_equal(opened[name].load(), lazy.load()), name


@FORMS
def test_each_file_is_one_request(form: str, saved: Path) -> None:
    """What may be there, then each array's description, then its only chunk."""
    with FaultServer(files_at("one", saved / form)) as server, tensorkeep.open(f"{server.url}one/") as opened:
        n_opened = len(server.requests)
        assert_same(opened, saved / form)

        assert n_opened <= 8 + N_ARRAYS
        assert len(server.requests) == n_opened + N_ARRAYS
        for name in opened:
            opened[name].load()
        assert len(server.requests) == n_opened + N_ARRAYS  # all of them are small, and still in memory


@FORMS
def test_a_store_is_listed_once(form: str, saved: Path, stored: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    url = stored(saved / form)
    finds: list[str] = []
    files = type(fsspec.filesystem("memory"))
    find = files.find
    monkeypatch.setattr(files, "find", lambda self, path, **kw: finds.append(path) or find(self, path, **kw))
    with tensorkeep.open(url) as opened:
        assert_same(opened, saved / form)
        copy = pickle.loads(pickle.dumps(opened["count"]))
        assert np.array_equal(copy[1:3], opened["count"][1:3])

    assert len(finds) == 2  # one for the copy


def test_a_slice_asks_only_for_the_chunks_that_it_touches(tmp_path: Path) -> None:
    array = np.arange(100 * 30, dtype=np.int32).reshape(100, 30)
    directory = tmp_path / "step"
    write_zarr(directory, array, (10, 30))
    with FaultServer(files_at("one", directory)) as server, tensorkeep.open(f"{server.url}one/") as opened:
        n_opened = len(server.requests)

        assert np.array_equal(opened["w"][25:41, ::3], array[25:41, ::3])
        assert len(server.requests) == n_opened + 3


@FORMS
def test_what_is_missing_is_named(form: str, saved: Path, tmp_path: Path, stored: Any) -> None:
    directory = Path(shutil.copytree(saved / form, tmp_path / "step"))
    for chunk in (directory / "count").iterdir():
        if chunk.name not in zarr.ARRAY_KEYS.values():
            chunk.rename(directory / "moved") if chunk.is_file() else shutil.rmtree(chunk)
    with FaultServer(files_at("one", directory)) as server:
        for url in (f"{server.url}one/", stored(directory)):
            with tensorkeep.open(url) as opened, pytest.raises(IntegrityError, match="not whole"):
                opened["count"].load()
    shutil.rmtree(directory / "count")
    with (
        FaultServer(files_at("one", directory)) as server,
        pytest.raises(FormatError, match="the array is missing"),
    ):
        tensorkeep.open(f"{server.url}one/")


def test_an_array_larger_than_its_files_is_refused(tmp_path: Path) -> None:
    array = np.zeros((4, 4), np.int32)
    write_zarr(tmp_path / "step", array, (4, 4))
    path = tmp_path / "step" / "w" / ".zarray"
    path.write_text(path.read_text().replace("[4, 4]", "[4000000, 4000000]", 1))
    with FaultServer(files_at("one", tmp_path / "step")) as server, tensorkeep.open(f"{server.url}one/") as opened:
        n_opened = len(server.requests)
        with pytest.raises((LimitError, IntegrityError)):
            opened["w"].load()
        assert len(server.requests) < n_opened + 200


def test_a_server_that_lists_nothing_needs_a_list_of_the_arrays(saved: Path, tmp_path: Path, stored: Any) -> None:
    directory = Path(shutil.copytree(saved / "files-2", tmp_path / "step"))
    (directory / "_METADATA").unlink()
    (directory / "checkpoint").write_bytes(b"\x80")
    with tensorkeep.open(stored(directory)) as opened:
        assert len(opened) == N_ARRAYS
    with FaultServer(files_at("one", directory)) as server, pytest.raises((FormatError, UnsupportedError)):
        tensorkeep.open(f"{server.url}one/")

"""Databases that tensorstore wrote: deep trees, shards, few requests, and little memory."""

from __future__ import annotations

import pickle
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tensorkeep
from tensorkeep.errors import IntegrityError, SourceChangedError, SourceMissingError, UnsupportedError
from tests.support.formats.orbax_files import files_at
from tests.support.formats.zarr_program import N_ROWS, large, rows, save, table
from tests.support.peak_memory import with_peak
from tests.support.remote.fault_server import FaultServer

NBYTES = 200_000_000


@pytest.fixture(scope="session")
def deep(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database whose tree has three levels, in many data files."""
    directory = tmp_path_factory.mktemp("deep") / "step"
    save(directory, "deep")
    return directory


@pytest.fixture(params=["zarr-2", "zarr-3"], scope="module")
def one_large(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An array of 200 MB in 1,000 chunks."""
    directory = tmp_path_factory.mktemp("large") / "step"
    save(directory, request.param)
    return directory


@pytest.mark.parametrize("engine", [None, "tensorstore"], ids=["own", "tensorstore"])
def test_deep_trees_and_shards_are_read(engine: str | None, deep: Path) -> None:
    with tensorkeep.open(deep, engine=engine) as opened:
        assert len(opened) == N_ROWS + 1
        assert np.array_equal(opened["table"].load(), table())
        assert np.array_equal(opened["table"][29:200:3, 5], table()[29:200:3, 5])
        for number in range(N_ROWS):
            assert np.array_equal(opened[f"rows.{number}"].load(), rows(number))


def test_lazy_tensors_are_pickled(deep: Path) -> None:
    with tensorkeep.open(deep) as opened:
        copy = pickle.loads(pickle.dumps(opened["rows.3"]))

    assert np.array_equal(copy[2:, 1], rows(3)[2:, 1])


def test_a_server_that_lists_nothing_is_asked_for_few_files(saved: Path) -> None:
    """The step, the tree, the manifest, and the data file with the keys; before, what else a directory may be."""
    directory = saved / "chunked"
    files = files_at("run", directory)
    for url, most in (("run/manifest.ocdbt", 4), ("run/", 9)):
        with FaultServer(files) as server, tensorkeep.open(f"{server.url}{url}") as opened:
            assert np.array_equal(opened["w"][5:50:9], np.arange(64 * 48).reshape(64, 48)[5:50:9])
            assert len(server.requests) <= most


def test_a_checkpoint_is_fetched_and_none_loses_what_a_server_does_not_list(saved: Path, tmp_path: Path) -> None:
    with FaultServer(files_at("one", saved / "single" / "5") | files_at("two", saved / "run" / "10")) as server:
        fetched = tensorkeep.fetch(f"{server.url}one/", tmp_path / "one")
        with pytest.raises(UnsupportedError, match=r"does not list what is in items.*found rng.*two/"):
            tensorkeep.open(f"{server.url}two/")
        with tensorkeep.open(f"{server.url}two/state/manifest.ocdbt") as opened:
            assert opened["w"].load().tolist() == [10, 10, 10]

    assert tensorkeep.load(fetched)["w"].tolist() == [1, 1, 1]
    assert tensorkeep.verify(fetched).is_whole


def test_lost_and_cut_data_files_are_named(deep: Path, tmp_path: Path) -> None:
    path = Path(shutil.copytree(deep, tmp_path / "step"))
    with tensorkeep.open(path) as opened:
        for file in (path / "d").iterdir():
            file.write_bytes(b"")
        with pytest.raises((IntegrityError, SourceChangedError), match=r"/step/d/"):
            opened.load()
    shutil.rmtree(path / "d")
    with pytest.raises(SourceMissingError, match=r"/step/d/"):
        tensorkeep.open(path)


def test_a_slice_or_a_conversion_takes_little_memory(one_large: Path, tmp_path: Path) -> None:
    def slice_of_it() -> Any:
        with tensorkeep.open(one_large) as opened:
            return opened["large"][5000:5010, ::1000].tolist()

    part, n_sliced = with_peak(slice_of_it)
    assert part == large()[5000:5010, ::1000].tolist()
    assert n_sliced < 30_000_000

    _, n_converted = with_peak(tensorkeep.convert, one_large, tmp_path / "large.safetensors")
    assert n_converted < NBYTES // 2
    assert np.array_equal(tensorkeep.load(tmp_path / "large.safetensors")["large"], large())


def test_loading_takes_little_more_than_the_array(one_large: Path) -> None:
    def load() -> int:
        return int(tensorkeep.load(one_large)["large"][-1, -1])

    last, nbytes = with_peak(load)
    assert last == large()[-1, -1]
    assert nbytes < 1.5 * NBYTES

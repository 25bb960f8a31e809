"""TensorFlow's checkpoints on a server: opened and read in few requests, whose number is known."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import tensorkeep
from tests.support.formats.crafted_bundle import bundle
from tests.support.formats.tensorflow_files import loaded_by_tensorflow, written_by_tensorflow
from tests.support.remote.fault_server import FaultServer


@pytest.fixture
def files() -> Path:
    return written_by_tensorflow()


def contents_of(directory: Path) -> dict[str, bytes]:
    return {
        path.relative_to(directory).as_posix(): path.read_bytes()
        for path in sorted(directory.rglob("*"))
        if path.is_file()
    }


class TestRequests:
    """Opening is the index, and the beginning of each data file; a slice is one more.

    A program's file is looked at too. A directory that lists nothing costs three: the two names that safetensors
    files could have, and the program's.
    """

    def test_a_program_by_its_file(self, files: Path) -> None:
        with FaultServer(contents_of(files / "module")) as server:
            with tensorkeep.open(f"{server.url}saved_model.pb") as opened:
                n_opened = len(server.requests)
                assert opened["w"][1].tolist() == [3, 4, 5]
            assert n_opened <= 3
            assert len(server.requests) <= n_opened + 1

    def test_a_program_by_its_directory(self, files: Path) -> None:
        with FaultServer(contents_of(files / "module")) as server:
            with tensorkeep.open(server.url) as opened:
                n_opened = len(server.requests)
                assert opened["w"][1].tolist() == [3, 4, 5]
            assert n_opened <= 5
            assert len(server.requests) <= n_opened + 1

    def test_shards(self, files: Path) -> None:
        content = contents_of(files)
        with FaultServer({name: content[name] for name in content if name.startswith("sharded.")}) as server:
            with tensorkeep.open(f"{server.url}sharded.index") as opened:
                n_opened = len(server.requests)
                first = next(iter(opened))
                assert opened[first].load().tobytes() == loaded_by_tensorflow("sharded")[first][2]
            assert n_opened <= 3
            assert len(server.requests) <= n_opened + 1

    def test_a_row_of_a_large_tensor_is_read_alone(self, tmp_path: Path) -> None:
        array = np.arange(2**20, dtype=np.int64).reshape(2**10, 2**10)
        path = bundle(tmp_path, {"w": array, "v": array + 1})
        with FaultServer(contents_of(tmp_path)) as server:
            with tensorkeep.open(f"{server.url}{path.name}.index") as opened:
                n_opened = len(server.requests)
                assert np.array_equal(opened["w"][700], array[700])
            assert n_opened <= 2
            assert len(server.requests) <= n_opened + 1
            assert sum(asked.nbytes for asked in server.requests) < 200_000

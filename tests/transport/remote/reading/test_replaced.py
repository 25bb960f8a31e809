"""Checkpoints that a save replaces while they are read, and names of URLs that could not be read again."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import fsspec
import numpy as np
import pytest

import tensorkeep
from tensorkeep import remote
from tensorkeep.errors import SourceChangedError, SourceMissingError, UnsupportedError
from tests.support.remote.fault_server import Fault, FaultServer

QUICK = {"head_nbytes": 1024, "pause_s": 0.001, "attempts": 2}


def state_of(value: int) -> dict[str, np.ndarray]:
    return {f"w{number}": np.full((40, 50), value, np.float32) for number in range(3)}


def value_of(state: dict[str, np.ndarray]) -> int:
    """Return the value of a state, all of which is of one save."""
    assert state.keys() == state_of(0).keys()
    (value,) = {float(each) for tensor in state.values() for each in np.unique(tensor)}
    return int(value)


@pytest.fixture
def memory() -> Iterator[str]:
    name = uuid.uuid4().hex
    yield f"memory://{name}/"
    fsspec.filesystem("memory").rm(f"/{name}", recursive=True)


def files_at(url: str) -> dict[str, bytes]:
    files = fsspec.filesystem("memory")
    return {f"m/{path.rpartition('/')[2]}": files.cat_file(path) for path in files.ls(url[len("memory:/") :], False)}


@pytest.fixture
def two_saves(memory: str) -> tuple[dict[str, bytes], dict[str, bytes]]:
    """The files of a checkpoint, and those after another save to the same place."""
    saved = []
    for value in (1, 2):
        tensorkeep.save_checkpoint(state_of(value), memory + "ck", max_shard_size=10_000)
        saved.append(files_at(memory + "ck"))
    assert len(saved[0].keys() & saved[1].keys()) == 1, "only the index has the same name"
    return saved[0], saved[1]


class ReplacingServer(FaultServer):
    """Has other files from some request on."""

    def __init__(self, before: dict[str, bytes], after: dict[str, bytes], n_requests: int) -> None:
        super().__init__(before)
        self.after = after
        self.n_left = n_requests

    def next_fault(self) -> Fault:
        if self.n_left == 0:
            self.files = dict(self.after)
        self.n_left -= 1
        return Fault()


class TestReaders:
    def test_a_load_gets_the_old_or_the_new_one_whenever_it_is_replaced(self, two_saves) -> None:
        found = []
        for n_requests in range(30):
            with ReplacingServer(*two_saves, n_requests) as server:
                found.append(value_of(tensorkeep.load(remote(server.url + "m/", connections=1, **QUICK))))
                is_replaced = server.n_left < 0
            if not is_replaced:
                break

        assert not is_replaced, "the last one was not replaced at all"
        assert {1, 2} == set(found)

    def test_an_opening_gets_the_old_or_the_new_one(self, two_saves) -> None:
        for n_requests in range(20):
            with ReplacingServer(*two_saves, n_requests) as server:
                with tensorkeep.open(remote(server.url + "m/", **QUICK)) as opened:
                    assert len(opened) == 3
                if server.n_left >= 0:
                    break
        assert n_requests > 3

    def test_an_older_opening_says_that_it_was_replaced(self, memory: str) -> None:
        url = remote(memory + "ck", **QUICK)
        tensorkeep.save_checkpoint(state_of(1), url, max_shard_size=10_000)
        with tensorkeep.open(url) as opened:
            tensorkeep.save_checkpoint(state_of(2), url, max_shard_size=10_000)

            with pytest.raises(SourceChangedError, match="Open the checkpoint again"):
                opened["w0"].load()

        assert value_of(tensorkeep.load(url)) == 2

    def test_a_shard_that_is_missing_from_the_start_is_missing(self, two_saves) -> None:
        files, _ = two_saves
        name = max(name for name in files if name.endswith(".safetensors"))
        with (
            FaultServer({each: data for each, data in files.items() if each != name}) as server,
            pytest.raises(SourceMissingError, match=name[2:]),
        ):
            tensorkeep.load(remote(server.url + "m/", **QUICK))


class TestNames:
    @pytest.mark.parametrize("name", ["run-5", "dir/", "Llama-3.1-8B", ""])
    def test_a_file_is_not_saved_under_the_name_of_a_directory(self, memory: str, name: str) -> None:
        with pytest.raises(UnsupportedError, match="save_checkpoint"):
            tensorkeep.save(state_of(1), memory + name)

        assert not fsspec.filesystem("memory").exists(memory + name)
        fsspec.filesystem("memory").makedirs(memory, exist_ok=True)

    def test_a_directory_with_the_name_of_a_file_ends_in_a_slash(self, memory: str) -> None:
        with pytest.raises(UnsupportedError, match="slash"):
            tensorkeep.save_checkpoint(state_of(1), memory + "llama.bak")

        tensorkeep.save_checkpoint(state_of(1), memory + "llama.bak/")
        assert value_of(tensorkeep.load(memory + "llama.bak/")) == 1

    def test_the_error_shows_no_secret(self) -> None:
        with pytest.raises(UnsupportedError) as caught:
            tensorkeep.save(state_of(1), remote("memory://alice:hush@place/run-5"))

        assert "hush" not in str(caught.value)

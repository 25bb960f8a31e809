"""Several processes that fetch to one place: one downloads, the others wait. Another checkpoint is not lost."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import tensorkeep
from tensorkeep import remote
from tensorkeep.checkpoint import save_folder
from tensorkeep.errors import BusyError, DestinationExistsError
from tests.support.fetching.fetch_runs import recorded, run
from tests.support.remote.fault_server import FaultServer
from tests.support.remote.nginx import Nginx, running_nginx

N = 200_000


def weights(seed: int) -> dict[str, np.ndarray]:
    return {f"w{n}": np.random.default_rng(seed + n).standard_normal(N, np.float32) for n in range(4)}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("served")
    tensorkeep.save_checkpoint(weights(0), root / "new", max_shard_size="2MB")
    with save_folder(root / "folder") as folder:
        tensorkeep.save_checkpoint(weights(0), folder)
        Path(folder, "inner").mkdir()
        Path(folder, "inner", "notes.txt").write_text("notes")
    return root


@pytest.fixture(scope="module")
def server(served: Path) -> Iterator[Nginx]:
    with running_nginx(served, f"location /slow/ {{ alias {served}/; limit_rate 1m; }}") as running:
        yield running


def large_answers(server: Nginx) -> int:
    """Return the bytes of weights that the server has sent."""
    return sum(nbytes for path, _, _, nbytes in server.log() if path.endswith(".safetensors"))


@pytest.mark.parametrize("name", ["new", "folder"])
def test_one_downloads_and_the_others_take_its_result(server: Nginx, served: Path, tmp_path: Path, name: str) -> None:
    before = large_answers(server)
    url = remote(f"{server.url}slow/{name}/", connections=2)
    pids = [run(lambda: tensorkeep.fetch(url, tmp_path / "x")) for _ in range(4)]
    told: list[tuple[int, int]] = []
    tensorkeep.fetch(url, tmp_path / "x", progress=lambda done, total: told.append((done, total)))

    assert [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids] == [0] * 4
    assert all(np.array_equal(array, weights(0)[key]) for key, array in tensorkeep.load(tmp_path / "x").items())
    nbytes = sum(path.stat().st_size for path in (served / name).glob("*.safetensors"))
    time.sleep(0.1)  # until the log has it
    assert large_answers(server) - before < 1.5 * nbytes
    assert told[-1][0] == told[-1][1]
    assert len({done for done, _ in told}) >= 2, "those who wait hear of the bytes that come"
    assert not [path for path in tmp_path.rglob("*") if "tensorkeep-fetch" in path.name]


def test_threads_of_one_process_wait_too(server: Nginx, tmp_path: Path) -> None:
    errors: list[BaseException] = []

    def fetch() -> None:
        try:
            tensorkeep.fetch(server.url + "slow/new/", tmp_path / "x")
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=fetch) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []


def test_a_fetch_that_is_killed_is_taken_over(server: Nginx, tmp_path: Path) -> None:
    pid = run(lambda: tensorkeep.fetch(server.url + "slow/new/", tmp_path / "x"))
    while not recorded(tmp_path):
        time.sleep(0.01)
    threading.Timer(0.5, os.kill, (pid, signal.SIGKILL)).start()

    tensorkeep.fetch(server.url + "slow/new/", tmp_path / "x")

    assert os.waitpid(pid, 0)[1] == signal.SIGKILL
    assert tensorkeep.verify(tmp_path / "x").is_whole


def test_nobody_waits_longer_than_told(server: Nginx, tmp_path: Path) -> None:
    pid = run(lambda: tensorkeep.fetch(remote(server.url + "slow/new/", connections=1), tmp_path / "x"))
    while not recorded(tmp_path):
        time.sleep(0.01)

    with pytest.raises(BusyError):
        tensorkeep.fetch(server.url + "slow/new/", tmp_path / "x", wait_s=0)
    with pytest.raises(BusyError) as caught:
        tensorkeep.fetch(server.url + "slow/new/", tmp_path / "x", wait_s=0.3)
    assert "wait_s=0.3" in "".join(caught.value.__notes__)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


class TestAnotherCheckpoint:
    @pytest.fixture
    def site(self, tmp_path: Path) -> Iterator[FaultServer]:
        files = {}
        for seed, name in enumerate(("m", "other")):
            tensorkeep.save({"w": np.full(9, seed)}, tmp_path / f"{name}.safetensors")
            files[f"{name}/model.safetensors"] = (tmp_path / f"{name}.safetensors").read_bytes()
        with FaultServer(files) as running:
            yield running

    def test_it_is_replaced_only_if_told(self, site: FaultServer, tmp_path: Path) -> None:
        here = tmp_path / "here"
        tensorkeep.save_checkpoint({"mine": np.ones(5)}, here)
        for url in (site.url + "m/", site.url + "m/model.safetensors"):
            with pytest.raises(DestinationExistsError, match="overwrite=True") as caught:
                tensorkeep.fetch(url, here)
            assert "model.safetensors" in str(caught.value)
            assert list(tensorkeep.load(here)) == ["mine"]
            assert os.listdir(here) == ["model.safetensors"]

        tensorkeep.fetch(site.url + "m/", here, overwrite=True)
        assert tensorkeep.load(here)["w"][0] == 0

    def test_shards_and_single_files_are_both_seen(self, site: FaultServer, tmp_path: Path) -> None:
        here = tmp_path / "here"
        tensorkeep.save_checkpoint({f"w{n}": np.ones(50) for n in range(3)}, here, max_shard_size=500)
        with pytest.raises(DestinationExistsError, match=r"model\.safetensors\.index\.json"):
            tensorkeep.fetch(site.url + "m/", here)
        assert len(tensorkeep.load(here)) == 3

    def test_a_new_version_of_what_was_fetched_is_no_other(self, site: FaultServer, tmp_path: Path) -> None:
        here = tmp_path / "here"
        tensorkeep.fetch(site.url + "m/", here)
        site.files["m/model.safetensors"] = site.files["other/model.safetensors"]
        tensorkeep.fetch(site.url + "m/", here)
        assert tensorkeep.load(here)["w"][0] == 1
        site.files["other/model.safetensors"] = (tmp_path / "m.safetensors").read_bytes()
        with pytest.raises(DestinationExistsError):
            tensorkeep.fetch(site.url + "other/", here)

    def test_what_was_changed_since_is_ones_own_work(self, site: FaultServer, tmp_path: Path) -> None:
        here = tmp_path / "here"
        tensorkeep.fetch(site.url + "m/", here)
        (here / "model.safetensors").write_bytes(site.files["other/model.safetensors"])  # the same inode, as torch
        with pytest.raises(DestinationExistsError):
            tensorkeep.fetch(site.url + "m/", here)
        assert tensorkeep.load(here)["w"][0] == 1

    def test_a_file_of_ones_own_name(self, site: FaultServer, tmp_path: Path) -> None:
        (tmp_path / "mine.safetensors").write_bytes(b"mine")
        with pytest.raises(DestinationExistsError, match=r"found mine\.safetensors"):
            tensorkeep.fetch(site.url + "m/model.safetensors", tmp_path / "mine.safetensors")
        assert (tmp_path / "mine.safetensors").read_bytes() == b"mine"

    def test_folders_with_a_manifest(self, server: Nginx, tmp_path: Path) -> None:
        with save_folder(tmp_path / "run") as folder:
            Path(folder, "old.txt").write_text("old")
        with pytest.raises(DestinationExistsError, match=r"old\.txt"):
            tensorkeep.fetch(server.url + "folder/", tmp_path / "run")
        tensorkeep.fetch(server.url + "folder/", tmp_path / "run", overwrite=True)
        assert not (tmp_path / "run" / "old.txt").exists()
        tensorkeep.fetch(server.url + "folder/", tmp_path / "run")

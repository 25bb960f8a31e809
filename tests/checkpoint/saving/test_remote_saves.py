"""Checkpoints saved to a bucket of S3 and to file systems: complete or not at all, also if several save at once."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time

import fsspec
import numpy as np
import pytest
from fsspec.implementations.dirfs import DirFileSystem
from fsspec.implementations.local import LocalFileSystem
from fsspec.implementations.memory import MemoryFileSystem

import tensorkeep
from tensorkeep import remote
from tensorkeep.errors import SourceChangedError, SourceMissingError, UnsupportedError
from tests.support.remote.s3_bucket import Bucket
from tests.support.remote.s3_proxy import Proxy
from tests.support.soak import SEED, rounds

BASE = {
    "model": {f"layer.{n}": np.random.default_rng(n).standard_normal((40, 50), np.float32) for n in range(5)},
    "step": 7,
    "notes": ["a", (1, 2.5)],
}
SHARD = "20KB"


def with_step(step: int) -> dict:
    return BASE | {"step": step, "model": {name: tensor + step for name, tensor in BASE["model"].items()}}


STATE = with_step(7)


def step_of(state) -> int:
    """Return the step of a state, all of which is of that step."""
    expected = with_step(state["step"])
    assert state["notes"] == expected["notes"]
    assert state["model"].keys() == expected["model"].keys()
    assert all(np.array_equal(state["model"][name], tensor) for name, tensor in expected["model"].items())
    return state["step"]


@pytest.fixture(scope="module")
def s3():
    with Bucket.served() as bucket:
        yield bucket


def shards(names: set[str]) -> set[str]:
    return {name for name in names if name.endswith(".safetensors")}


class TestToABucket:
    def test_a_file_comes_back_whole(self, s3) -> None:
        path = s3.at("one/model.safetensors")
        seen = []

        tensorkeep.save(STATE, path, metadata={"by": "me"}, progress=lambda *pair: seen.append(pair))

        assert step_of(tensorkeep.load(path)) == 7
        assert tensorkeep.open(path).metadata["by"] == "me"
        assert tensorkeep.verify(path).n_checked == 5
        assert seen[-1] == (40_000, 40_000)

    def test_the_bytes_are_those_of_a_file_on_the_disk(self, s3, tmp_path) -> None:
        tensorkeep.save(STATE, s3.at("same/model.safetensors"))
        tensorkeep.save(STATE, tmp_path / "model.safetensors")

        sent = s3.client.get_object(Bucket="models", Key="same/model.safetensors")["Body"].read()
        assert sent == (tmp_path / "model.safetensors").read_bytes()

    def test_a_small_checkpoint_is_one_file(self, s3) -> None:
        tensorkeep.save_checkpoint(STATE, s3.at("small"))

        assert s3.names("small") == {"model.safetensors"}
        assert step_of(tensorkeep.load(s3.at("small"))) == 7

    def test_digests_of_blocks_come_and_go_with_the_shards(self, s3) -> None:
        arrays = {f"w{number}": np.full((300, 100), float(number)) for number in range(3)}
        for number in range(3):
            arrays["w2"][0] = number
            path = s3.at("blocks/")
            tensorkeep.save_checkpoint(arrays, path, max_shard_size="300KB", block_digests=number < 2)

            found = s3.names("blocks")
            beside = {f"{name}.blocks" for name in shards(found)} if number < 2 else set()
            assert found - shards(found) == {"model.safetensors.index.json"} | beside
            assert len(shards(found)) == 3
            with tensorkeep.open(path, verify=True) as opened:
                np.testing.assert_array_equal(opened["w2"][:3], arrays["w2"][:3])

    def test_shards_and_an_index(self, s3) -> None:
        tensorkeep.save_checkpoint(STATE, s3.at("large/"), max_shard_size=SHARD, sha256=True)

        names = s3.names("large")
        assert len(names) == 4
        assert all(re.fullmatch(r"model-[0-9a-f]{8}-0000\d-of-00003\.safetensors", name) for name in shards(names))
        assert step_of(tensorkeep.load(s3.at("large/"))) == 7
        assert tensorkeep.verify(s3.at("large/")).n_sha256 == 3

    def test_a_large_file_goes_in_parts(self, s3) -> None:
        state = {"large": np.random.default_rng(0).integers(0, 255, 20_000_000, np.uint8)}

        tensorkeep.save(state, s3.at("parts/model.safetensors"))

        head = s3.client.head_object(Bucket="models", Key="parts/model.safetensors")
        assert head["ETag"].strip('"').endswith("-3")
        assert tensorkeep.verify(s3.at("parts/model.safetensors")).is_whole

    def test_in_the_background(self, s3) -> None:
        file = tensorkeep.save_async(STATE, s3.at("async/model.safetensors"))
        folder = tensorkeep.save_async(STATE, s3.at("async/folder"), max_shard_size=SHARD)

        assert file.result() is None
        assert folder.result() is None
        assert step_of(tensorkeep.load(s3.at("async/model.safetensors"))) == 7
        assert step_of(tensorkeep.load(s3.at("async/folder"))) == 7

    def test_tensors_of_another_checkpoint(self, s3, tmp_path) -> None:
        tensorkeep.save_checkpoint(STATE["model"], tmp_path / "here", max_shard_size=SHARD)

        tensorkeep.save_checkpoint(tensorkeep.open(tmp_path / "here"), s3.at("copied"))

        assert tensorkeep.diff(tmp_path / "here", s3.at("copied")).is_equal


class TestOverAnOldOne:
    def test_what_is_old_is_removed(self, s3) -> None:
        tensorkeep.save_checkpoint(with_step(1), s3.at("again"), max_shard_size=SHARD)
        s3.client.put_object(Bucket="models", Key="again/config.json", Body=b"{}")
        before = s3.names("again")

        tensorkeep.save_checkpoint(with_step(2), s3.at("again"), max_shard_size="50KB")

        assert step_of(tensorkeep.load(s3.at("again"))) == 2
        assert len(shards(s3.names("again"))) == 1
        assert s3.names("again") & before == {"model.safetensors.index.json", "config.json"}

    def test_shards_that_stay_the_same_are_not_sent(self, s3) -> None:
        tensorkeep.save_checkpoint(STATE["model"], s3.at("reused"), max_shard_size=SHARD)
        before = shards(s3.names("reused"))

        tensorkeep.save_checkpoint(
            STATE["model"] | {"layer.4": np.zeros((40, 50), np.float32)}, s3.at("reused"), max_shard_size=SHARD
        )

        assert len(shards(s3.names("reused")) & before) == 2
        assert tensorkeep.verify(s3.at("reused")).is_whole

    def test_an_index_takes_the_place_of_a_single_file(self, s3) -> None:
        tensorkeep.save_checkpoint(with_step(1), s3.at("grown"))
        tensorkeep.save_checkpoint(with_step(2), s3.at("grown"), max_shard_size=SHARD)

        assert step_of(tensorkeep.load(s3.at("grown"))) == 2
        assert "model.safetensors" not in s3.names("grown")

    def test_the_later_of_two_saves_that_overlap_is_refused(self, s3) -> None:
        path = s3.at("race")
        tensorkeep.save_checkpoint(with_step(1), path, max_shard_size=SHARD)

        def overtake(*_) -> None:
            if not overtaken:
                overtaken.append(True)
                tensorkeep.save_checkpoint(with_step(2), path, max_shard_size=SHARD)

        overtaken: list[bool] = []
        with pytest.raises(SourceChangedError, match="another save was finished here in the meantime"):
            tensorkeep.save_checkpoint(with_step(3), path, max_shard_size=SHARD, progress=overtake)

        assert step_of(tensorkeep.load(path)) == 2
        assert len(s3.names("race")) == 4
        assert not s3.unfinished()

    def test_a_bucket_is_read_while_it_is_written_to(self, s3) -> None:
        tensorkeep.save_checkpoint(with_step(3)["model"], s3.at("copied-from"), max_shard_size=SHARD)

        tensorkeep.save_checkpoint(tensorkeep.open(s3.at("copied-from")), s3.at("copied-to"), max_shard_size="50KB")

        assert tensorkeep.diff(s3.at("copied-from"), s3.at("copied-to")).is_equal

    def test_readers_find_one_or_the_other(self, s3) -> None:
        path = s3.at("read-meanwhile")
        tensorkeep.save_checkpoint(with_step(0), path, max_shard_size=SHARD)
        is_over = threading.Event()

        def save() -> None:
            for step in range(1, 8):
                tensorkeep.save_checkpoint(with_step(step), path, max_shard_size=SHARD)
            is_over.set()

        saver = threading.Thread(target=save)
        saver.start()
        n_read = 0
        while not is_over.is_set():
            try:
                step_of(tensorkeep.load(path))
                n_read += 1
            except (SourceChangedError, SourceMissingError):  # the shards of what was opened are gone
                continue
        saver.join()
        assert step_of(tensorkeep.load(path)) == 7
        assert n_read


class TestSavesThatFail:
    def test_nothing_is_left_of_what_was_sent(self, s3) -> None:
        path = s3.at("failing")
        tensorkeep.save_checkpoint(with_step(1), path, max_shard_size=SHARD)
        before = s3.names("failing")

        def fail(done: int, total: int) -> None:
            if done > total // 2:
                raise RuntimeError("enough")

        with pytest.raises(RuntimeError, match="enough"):
            tensorkeep.save_checkpoint(with_step(2), path, max_shard_size=SHARD, progress=fail)

        assert s3.names("failing") == before
        assert step_of(tensorkeep.load(path)) == 1
        assert not s3.unfinished()

    def test_a_file_that_fails_leaves_the_old_one(self, s3) -> None:
        path = s3.at("failing-file/model.safetensors")
        tensorkeep.save(with_step(1), path)

        def fail(*_) -> None:
            raise RuntimeError("enough")

        with pytest.raises(RuntimeError, match="enough"):
            tensorkeep.save({"large": np.zeros(30_000_000, np.uint8)}, path, progress=fail)

        assert step_of(tensorkeep.load(path)) == 1
        assert not s3.unfinished()

    def test_an_interrupt_ends_a_save(self, s3) -> None:
        state = {"large": np.zeros(200_000_000, np.uint8)}
        timer = threading.Timer(0.2, lambda: os.kill(os.getpid(), signal.SIGINT))
        timer.start()

        with pytest.raises(KeyboardInterrupt):
            tensorkeep.save(state, s3.at("interrupted/model.safetensors"), digests=False)

        assert not s3.names("interrupted")

    @pytest.mark.parametrize("state", [{"model": print}, {"model": threading.Lock()}], ids=["function", "lock"])
    def test_what_is_no_data_is_refused_before_anything_is_sent(self, s3, state) -> None:
        with pytest.raises(tensorkeep.errors.StateError):
            tensorkeep.save_checkpoint(state, s3.at("nothing"))

        assert not s3.names("nothing")

    def test_a_bucket_that_is_not_there(self, s3) -> None:
        path = s3.remote("s3://elsewhere/model.safetensors")

        with pytest.raises(SourceMissingError, match="no such bucket"):
            tensorkeep.save(STATE, path)

    def test_a_bucket_that_may_not_be_listed(self, s3) -> None:
        with MayNotBeListed.before(s3.url) as url:
            path = s3.at("unlisted/", endpoint=url)
            tensorkeep.save_checkpoint(with_step(1), path, max_shard_size=SHARD)
            tensorkeep.save_checkpoint(with_step(2), path, max_shard_size=SHARD)

        assert step_of(tensorkeep.load(s3.at("unlisted/"))) == 2
        assert len(s3.names("unlisted")) == 4

    @pytest.mark.parametrize("has_older", [False, True])
    def test_a_commit_whose_answer_is_lost_is_one(self, s3, monkeypatch, has_older) -> None:
        monkeypatch.setattr(LosesTheCommit, "n_lost", 0)
        place = f"lost-{has_older}/"
        if has_older:
            tensorkeep.save_checkpoint(with_step(1), s3.at(place), max_shard_size=SHARD)
        with LosesTheCommit.before(s3.url) as url:
            tensorkeep.save_checkpoint(with_step(2), s3.at(place, endpoint=url), max_shard_size=SHARD)

        assert LosesTheCommit.n_lost == 1
        assert step_of(tensorkeep.load(s3.at(place))) == 2
        assert tensorkeep.verify(s3.at(place)).is_whole
        assert len(s3.names(place.rstrip("/"))) == 4

    @pytest.mark.soak
    def test_killed_saves_leave_the_old_or_the_new(self, s3) -> None:
        path = s3.at("killed")
        tensorkeep.save_checkpoint(with_step(0), path, max_shard_size=SHARD)
        program = (
            "import sys\n"
            "from tests.support.remote.s3_bucket import KEYS\n"
            "from tests.checkpoint.saving.test_remote_saves import SHARD, with_step\n"
            "import tensorkeep\n"
            "path = tensorkeep.remote('s3://models/killed', endpoint=sys.argv[1], **KEYS)\n"
            "print(flush=True)\n"
            "for step in range(int(sys.argv[2]), 1000):\n"
            "    tensorkeep.save_checkpoint(with_step(step), path, max_shard_size=SHARD)\n"
            "    print(flush=True)"
        )
        rng = np.random.default_rng(SEED)
        last = 0
        for number in range(rounds(3, 1000)):
            arguments = [sys.executable, "-c", program, s3.url, str(last + 1)]
            with subprocess.Popen(arguments, stdout=subprocess.PIPE) as saver:
                for _ in range(1 + number % 2):  # every other one saves at least once
                    saver.stdout.readline()
                time.sleep(rng.uniform(0.05, 0.4))
                saver.kill()
            step = step_of(tensorkeep.load(path))
            assert step >= last
            assert tensorkeep.verify(path).is_whole
            last = step
        assert last


class LosesAnswers(MemoryFileSystem):
    """Does what it is told, and then says that it failed: once."""

    store: dict = {}  # noqa: RUF012 - as its base
    pseudo_dirs = [""]  # noqa: RUF012
    n_lost = 0
    cachable = False

    def mv(self, path1, path2, **options) -> None:
        super().mv(path1, path2, **options)
        if path2.endswith(".index.json") and not LosesAnswers.n_lost:
            LosesAnswers.n_lost += 1
            raise ConnectionError("cut")


class MayNotBeListed(Proxy):
    """Denies what is missing, as buckets do that may not be listed."""

    def status_of(self, status: int) -> int:
        return 403 if status == 404 else status


class LosesTheCommit(Proxy):
    """Says that the index could not be written, when it was: once."""

    n_lost = 0

    def status_of(self, status: int) -> int:
        if self.command == "PUT" and "index.json" in self.path and status == 200 and not LosesTheCommit.n_lost:
            LosesTheCommit.n_lost += 1
            return 500
        return status


class TestToFileSystems:
    @pytest.fixture
    def memory(self):
        files = fsspec.filesystem("memory")
        yield files
        files.store.clear()

    def test_memory(self, memory) -> None:
        tensorkeep.save_checkpoint(with_step(1), "memory://run/last", max_shard_size=SHARD)
        tensorkeep.save_checkpoint(with_step(2), "memory://run/last", max_shard_size=SHARD)
        tensorkeep.save(with_step(3), "memory://run/file.safetensors")

        assert step_of(tensorkeep.load("memory://run/last")) == 2
        assert step_of(tensorkeep.load("memory://run/file.safetensors")) == 3
        assert len(memory.ls("/run/last")) == 4

    def test_a_directory_of_this_machine(self, tmp_path) -> None:
        files = DirFileSystem(str(tmp_path), LocalFileSystem())

        tensorkeep.save_checkpoint(with_step(1), remote(files, "new/run"), max_shard_size=SHARD)

        assert step_of(tensorkeep.load(tmp_path / "new" / "run")) == 1

    def test_a_save_that_fails(self, memory) -> None:
        tensorkeep.save_checkpoint(with_step(1), "memory://run", max_shard_size=SHARD)
        before = memory.find("/run")

        def fail(*_) -> None:
            raise RuntimeError("enough")

        with pytest.raises(RuntimeError, match="enough"):
            tensorkeep.save_checkpoint(with_step(2), "memory://run", max_shard_size=SHARD, progress=fail)

        assert memory.find("/run") == before

    def test_the_answer_to_the_commit_is_lost(self) -> None:
        path = remote(LosesAnswers(), "run")

        tensorkeep.save_checkpoint(with_step(1), path, max_shard_size=SHARD)

        assert LosesAnswers.n_lost == 1
        assert step_of(tensorkeep.load(path)) == 1


class TestWhereNothingCanBeWritten:
    @pytest.mark.parametrize("save", [tensorkeep.save, tensorkeep.save_checkpoint])
    def test_web_servers(self, save) -> None:
        with pytest.raises(UnsupportedError, match="web servers cannot be written to"):
            save(STATE, "http://127.0.0.1:9/model")

    def test_a_store_of_steps(self) -> None:
        with pytest.raises(UnsupportedError, match="cannot be written to"):
            tensorkeep.CheckpointStore("https://127.0.0.1:9/run")

    def test_before_commit(self) -> None:
        looked: list[dict[str, int]] = []

        def look(staged) -> None:
            looked.append({name: tensorkeep.open(path).nbytes for name, path in staged.items()})
            if len(looked) == 2:
                raise KeyboardInterrupt

        tensorkeep.save_checkpoint(with_step(1), "memory://looked", max_shard_size=SHARD, before_commit=look)
        with pytest.raises(KeyboardInterrupt):
            tensorkeep.save_checkpoint(with_step(2), "memory://looked", max_shard_size=SHARD, before_commit=look)
        tensorkeep.save_checkpoint(with_step(3), "memory://looked/one", before_commit=look)

        assert len(looked[0]) > 1
        assert looked[1].keys() == looked[0].keys()
        assert looked[2] == {}, "one file is written in one step"
        assert step_of(tensorkeep.load("memory://looked")) == 1
        assert step_of(tensorkeep.load("memory://looked/one")) == 3


class TestNames:
    """What was saved under a name is found under it, whatever the name, and nothing else is touched."""

    @pytest.mark.parametrize(
        "url", ["s3://models/run#1.safetensors", "s3://models/run?1.safetensors", "az://c/x?sig=1"]
    )
    @pytest.mark.parametrize(
        "use", [lambda path: tensorkeep.save(STATE, path), tensorkeep.open], ids=["save", "open"]
    )
    def test_what_would_cut_off_a_key(self, s3, url, use) -> None:
        before = s3.client.list_objects_v2(Bucket="models").get("KeyCount")

        with pytest.raises(UnsupportedError, match="has no meaning in URLs"):
            use(s3.remote(url))

        assert s3.client.list_objects_v2(Bucket="models").get("KeyCount") == before

    def test_keys_that_have_it(self, s3) -> None:
        tensorkeep.save(with_step(1), s3.at("odd/run%231%3F.safetensors"))
        tensorkeep.save_checkpoint(with_step(2), s3.at("odd/a%20b%23/ck/"), max_shard_size=SHARD)

        assert "run#1?.safetensors" in s3.names("odd")
        assert "a b#/ck/model.safetensors.index.json" in s3.names("odd")
        assert step_of(tensorkeep.load(s3.at("odd/run%231%3F.safetensors"))) == 1
        assert step_of(tensorkeep.load(s3.at("odd/a%20b%23/ck/"))) == 2

    @pytest.mark.parametrize("name", ["run?1", "a*", "run[1]", "a#b", "a b", "50%"])
    def test_names_of_file_systems(self, name, tmp_path) -> None:
        memory = fsspec.filesystem("memory")
        local = remote(LocalFileSystem(), f"{tmp_path}/{name}.safetensors")
        try:
            for path in (f"memory://odd/{name}.safetensors", local):
                tensorkeep.save(with_step(1), path)
                assert step_of(tensorkeep.load(path)) == 1
            assert memory.ls("/odd", detail=False) == [f"/odd/{name}.safetensors"]
            assert os.listdir(tmp_path) == [f"{name}.safetensors"]
        finally:
            memory.store.clear()

    def test_a_path_beside_a_url(self, s3) -> None:
        tensorkeep.save(with_step(4), s3.remote("s3://models", "beside/m.safetensors"))

        assert s3.names("beside") == {"m.safetensors"}


@pytest.mark.parametrize(
    "options",
    [{"timeout_s": None}, {"timeout_s": "3"}, {"attempts": 0}, {"head_nbytes": "1MB"}, {"connections": 0}],
    ids=str,
)
def test_options_that_are_none(options) -> None:
    with pytest.raises(UnsupportedError, match=r"an option of tensorkeep\.remote is invalid"):
        remote("https://example.org/m.safetensors", **options)


def test_more_options_for_a_path(s3) -> None:
    tensorkeep.save(with_step(5), s3.at("more/m.safetensors"))

    path = remote(remote(s3.at("more"), "m.safetensors"), attempts=2)

    assert step_of(tensorkeep.load(path)) == 5

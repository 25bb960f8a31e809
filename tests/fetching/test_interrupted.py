"""Fetches that are killed, cut off, stalled, lied to or out of room: the next one goes on, and nothing is mixed."""

from __future__ import annotations

import errno
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
import safetensors.numpy

import tensorkeep
from tensorkeep import remote
from tensorkeep.errors import (
    BusyError,
    IntegrityError,
    SourceChangedError,
    SourceMissingError,
    TensorkeepError,
    TransportError,
)
from tensorkeep.fetching import _download
from tensorkeep.transport import ByteRange
from tests.support import SUPPORT
from tests.support.fetching.fetch_runs import kill_after, recorded, run
from tests.support.remote.fault_server import Fault, FaultServer
from tests.support.remote.nginx import Nginx, running_nginx
from tests.support.soak import SEED, rounds

N_KILLS = rounds(4, 1000)
N_FAULTS = rounds(12, 5000)
QUICK = {"pause_s": 0.001, "longest_pause_s": 0.01, "timeout_s": 1.0}
NEW, OLD = 0, 7
HEAD = 2**14
RATE = 6 * 2**20
N_CONNECTIONS = 4
LONGEST_S = 1.5


def weights(seed: int, n_rows: int = 250) -> dict[str, np.ndarray]:
    return {f"w{n}": np.random.default_rng(seed + n).standard_normal((n_rows, 3000), np.float32) for n in range(6)}


def is_equal(found: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> bool:
    return found.keys() == expected.keys() and all(np.array_equal(found[name], expected[name]) for name in expected)


def contents(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("served")
    tensorkeep.save_checkpoint(weights(NEW), root / "new", max_shard_size="7MB")
    root.joinpath("new", "config.json").write_text('{"of": "the new one"}')
    return root


@pytest.fixture(scope="module")
def server(served: Path) -> Iterator[Nginx]:
    slow = f"location /slow/ {{ alias {served}/; limit_rate {RATE}; }}"
    with running_nginx(served, slow) as running:
        yield running


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make parts small, so that some of them are there at any time."""
    monkeypatch.setattr(_download, "_PARTS_NBYTES", (2**19, 2**19))
    monkeypatch.setattr(_download, "BUFFER_NBYTES", 2**16)


@pytest.mark.usefixtures("small_parts")
@pytest.mark.soak
def test_killed_at_any_time_the_next_one_asks_for_the_rest(server: Nginx, served: Path, tmp_path: Path) -> None:
    chance = random.Random(SEED + 1)
    url = remote(server.url + "slow/new/", connections=N_CONNECTIONS)
    expected = contents(served / "new")
    seen: Counter[str] = Counter()
    n_kills = n_round = 0
    while n_kills < N_KILLS:
        n_round += 1
        directory = tmp_path / "models" / str(n_round)
        directory.parent.mkdir(exist_ok=True)
        if n_round % 2:
            tensorkeep.save_checkpoint(weights(OLD), directory, max_shard_size="3MB")
        is_over = False
        while not is_over:
            known = recorded(directory)
            n_logged = len(server.log())
            is_over = not kill_after(
                run(lambda: tensorkeep.fetch(url, directory, overwrite=True)),  # noqa: B023 - called at once
                chance.uniform(0, LONGEST_S),
            )
            time.sleep(0.05)  # until the log has it
            asked = server.log()[n_logged:]
            n_kills += not is_over
            seen["came again"] += overlap(known, asked)
            seen["was there"] += sum(len(span) for spans in known.values() for span in spans)
            seen["resumed"] += bool(known)
            if not is_over:
                seen["committed"] += number_in(directory) == NEW
                assert number_in(directory) in {NEW, OLD if n_round % 2 else None}
        assert contents(directory) == expected
        assert tensorkeep.verify(directory).is_whole
        shutil.rmtree(directory)
    assert seen["resumed"] >= N_KILLS // 3, "the kills came too early to say anything"
    assert seen["came again"] == 0, seen
    assert os.listdir(tmp_path / "models") == []


@pytest.mark.parametrize("kind", ["set", "folder"])
@pytest.mark.soak
def test_killed_at_calls_of_the_system_the_old_or_the_new_is_whole(tmp_path: Path, kind: str) -> None:
    script = SUPPORT / "fetching" / "interrupted_fetch.py"
    step = rounds(9, 1)
    done = subprocess.run(
        [sys.executable, script, tmp_path, kind, str(step)], capture_output=True, text=True, check=False
    )

    assert done.returncode == 0, done.stderr
    counts = json.loads(done.stdout)
    assert counts["kills"] >= 50 // step, "too few calls were seen to say anything"
    assert counts["old"] >= 20 // step
    assert counts["new"] >= 1


def contents_but_staging(directory: Path) -> dict[str, bytes]:
    if not directory.exists():
        return {}
    return {name: data for name, data in contents(directory).items() if ".tensorkeep-" not in name}


def number_in(directory: Path) -> int | None:
    """Return which checkpoint is there, all of it, or None; a commit that was cut off is finished by that."""
    try:
        found = tensorkeep.load(directory)
    except SourceMissingError:
        assert contents_but_staging(directory) == {}
        return None
    assert tensorkeep.verify(directory).is_whole
    return next(number for number in (NEW, OLD) if is_equal(found, weights(number)))


def overlap(known: dict[str, list[ByteRange]], asked: list[tuple[str, int, str, int]]) -> int:
    """Return the bytes that were asked for though they were recorded, but for the first of each file."""
    found = 0
    for path, status, span, _ in asked:
        if status != 206:
            continue
        first, last = (int(number) for number in span.removeprefix("bytes=").split("-"))
        for each in known.get(path.rpartition("/")[2], []):
            found += max(0, min(each.stop, last + 1) - max(each.start, first, HEAD))
    return found


def test_a_power_cut_in_between_makes_it_start_anew_unless_all_was_on_the_disk(
    server: Nginx, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for durable in (False, True):
        with pytest.raises(KeyboardInterrupt):
            tensorkeep.fetch(
                remote(server.url + "new/", connections=2), tmp_path / "x", durable=durable, progress=interrupt_late
            )
        kept = sum(len(span) for spans in recorded(tmp_path).values() for span in spans)
        assert kept > 2**20
        with monkeypatch.context() as patch:
            patch.setattr("tensorkeep.fetching._staging.host_tag", lambda: "next run")

            assert nbytes_there(server.url + "new/", tmp_path / "x", durable=durable) == (kept if durable else 0)

        assert is_equal(tensorkeep.load(tmp_path / "x"), weights(0))
        shutil.rmtree(tmp_path / "x")


def nbytes_there(url: str, directory: Path, *, durable: bool = True) -> int:
    """Fetch, and return the bytes that were there before."""
    told: list[int] = []
    tensorkeep.fetch(url, directory, durable=durable, progress=lambda done, total: told.append(done))
    return told[0]


def interrupt_late(done: int, total: int) -> None:
    if done > total // 2:
        raise KeyboardInterrupt


def test_without_durability_it_goes_on_in_the_same_run_of_the_system(server: Nginx, tmp_path: Path) -> None:
    for durable in (False, True):  # the second makes what the first has left durable
        with pytest.raises(KeyboardInterrupt):
            tensorkeep.fetch(server.url + "new/", tmp_path, durable=False, progress=interrupt_late)
        kept = sum(len(span) for spans in recorded(tmp_path).values() for span in spans)

        assert nbytes_there(server.url + "new/", tmp_path, durable=durable) == kept > 0
        assert is_equal(tensorkeep.load(tmp_path), weights(0))
        for path in tmp_path.iterdir():
            path.unlink()


def test_another_url_to_the_same_place_starts_anew(server: Nginx, served: Path, tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        tensorkeep.fetch(server.url + "slow/new/", tmp_path, progress=interrupt_late)
    assert recorded(tmp_path)

    assert nbytes_there(server.url + "new/", tmp_path) == 0
    assert contents(tmp_path) == contents(served / "new")


def test_ctrl_c_ends_it_soon_and_the_next_one_goes_on(server: Nginx, served: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tensorkeep", "fetch", server.url + "slow/new/", str(tmp_path / "x")]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    while not recorded(tmp_path):
        assert process.poll() is None, process.communicate()
        time.sleep(0.01)
    time.sleep(0.2)
    begin = time.monotonic()
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=20)

    assert (process.returncode, out) == (130, "")
    assert err.startswith("error: interrupted: ")
    assert err.endswith("the same command resumes the download\n")
    assert time.monotonic() - begin < 5
    assert contents_but_staging(tmp_path / "x") == {}
    assert tensorkeep.fetch(server.url + "slow/new/", tmp_path / "x") == str(tmp_path / "x")
    assert contents(tmp_path / "x") == contents(served / "new")


def test_ctrl_c_does_not_wait_for_a_silent_server(tmp_path: Path) -> None:
    data = safetensors.numpy.save({"w": np.arange(10**6)})
    with FaultServer({"model.safetensors": data}) as server:
        server.faults.extend([None, None, *[Fault(stall_at=10**5, delay_s=15)] * 8])
        command = [sys.executable, "-m", "tensorkeep", "fetch", server.url + "model.safetensors", str(tmp_path)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        while len(server.requests) < 3:
            time.sleep(0.02)
        time.sleep(0.2)
        begin = time.monotonic()
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=20)

        assert (process.returncode, out) == (130, "")
        assert err.startswith("error: interrupted: ")
        assert err.endswith("the same command resumes the download\n")
        assert time.monotonic() - begin < 6


class TestVersions:
    @pytest.mark.parametrize("etags", ["strong", "weak", "none"])
    def test_what_came_of_an_older_version_is_dropped(self, tmp_path: Path, etags: str) -> None:
        old, new = (safetensors.numpy.save({"w": np.full(10**6, n)}) for n in (1, 2))
        with FaultServer({"model.safetensors": old}, etags=etags) as server:
            url = server.url + "model.safetensors"
            with pytest.raises(KeyboardInterrupt):
                tensorkeep.fetch(remote(url, connections=1), tmp_path, progress=interrupt_late)
            assert recorded(tmp_path)
            server.files["model.safetensors"] = new

            tensorkeep.fetch(url, tmp_path)

        assert (tmp_path / "model.safetensors").read_bytes() == new
        assert os.listdir(tmp_path) == ["model.safetensors"]

    def test_only_the_shard_that_was_replaced_comes_again(self, served: Path, tmp_path: Path) -> None:
        files = {f"m/{name}": data for name, data in contents(served / "new").items()}
        first, *_, last = sorted(name for name in files if name.endswith(".safetensors"))
        with FaultServer(files) as server:
            server.faults.extend([])
            with pytest.raises(KeyboardInterrupt):
                tensorkeep.fetch(remote(server.url + "m/", connections=1), tmp_path, progress=interrupt_late)
            assert Path(first).name in recorded(tmp_path)
            assert recorded(tmp_path)[Path(first).name] == [ByteRange(0, len(files[first]))]
            server.files[last] = files[last] + b""
            server.requests.clear()

            tensorkeep.fetch(server.url + "m/", tmp_path)

            again = sum(each.nbytes for each in server.requests if each.path == first)
        assert again <= 2 * HEAD
        assert contents(tmp_path) == contents(served / "new")

    def test_what_says_no_version_starts_anew(self, tmp_path: Path) -> None:
        """A size alone does not tell one version from the next."""
        data = safetensors.numpy.save({"w": np.arange(10**6)})

        with FaultServer({"model.safetensors": data}, etags="none", times=False) as server:
            url = server.url + "model.safetensors"
            with pytest.raises(KeyboardInterrupt):
                tensorkeep.fetch(remote(url, connections=1), tmp_path, progress=interrupt_late)

            assert nbytes_there(url, tmp_path) == 0

        assert (tmp_path / "model.safetensors").read_bytes() == data


class TestFaults:
    FILES: ClassVar = {
        f"m/{name}": data
        for name, data in {
            "model.safetensors": safetensors.numpy.save({"a": np.arange(150_000), "b": np.ones(7)}),
            "config.json": b'{"a": 1}',
        }.items()
    }
    OTHER = safetensors.numpy.save({"a": np.arange(150_000) + 1, "b": np.ones(7)})
    LONGER = safetensors.numpy.save({"a": np.arange(160_000), "b": np.ones(7)})

    def random_fault(self, chance: random.Random, server: FaultServer) -> Fault:
        n = chance.choice([0, 1, chance.randrange(600_000), chance.randrange(400)])
        faults = [
            lambda: Fault(close=True),
            lambda: Fault(garbage=True),
            lambda: Fault(status=chance.choice([500, 502, 503, 504, 429])),
            lambda: Fault(status=chance.choice([400, 401, 403, 404, 418])),
            lambda: Fault(delay_s=chance.random() / 50, stall_at=n),
            lambda: Fault(cut_at=n),
            lambda: Fault(whole=True),
            lambda: Fault(whole=True, cut_at=n),
            lambda: Fault(shorter_by=n),
            lambda: Fault(shifted_by=chance.choice([1, n])),
            lambda: Fault(length_by=chance.choice([-1, 1, n, -n])),
            lambda: Fault(total_by=chance.choice([-1, 1, n])),
            lambda: Fault(no_content_range=True),
            lambda: Fault(encoding="gzip"),
            lambda: Fault(swap=chance.choice([self.OTHER, self.LONGER])),
        ]
        return chance.choice(faults)()

    def one_run(self, seed: int, folder: Path) -> Counter[str]:
        """Fetch until it works; whatever happens before, the old file or a whole version of the new one is there."""
        chance = random.Random(seed)
        outcomes: Counter[str] = Counter()
        folder.mkdir()
        old = safetensors.numpy.save({"old": np.zeros(3)})
        (folder / "model.safetensors").write_bytes(old)
        options = QUICK | {"connections": chance.choice([1, 3]), "attempts": chance.choice([1, 3])}
        with FaultServer(
            self.FILES, etags=chance.choice(["strong", "weak", "none"]), ranges=chance.random() < 0.8
        ) as server:
            trouble = chance.choice([0.1, 0.4, 0.7])
            server.faults.extend(
                self.random_fault(chance, server) if chance.random() < trouble else None
                for _ in range(chance.randrange(1, 60))
            )
            for _ in range(80):
                served = {self.FILES["m/model.safetensors"], self.OTHER, self.LONGER}
                begin = time.monotonic()
                try:
                    tensorkeep.fetch(remote(server.url + "m/", **options), folder, durable=False, overwrite=True)
                except TensorkeepError as error:
                    outcomes[type(error).__name__] += 1
                    assert (folder / "model.safetensors").read_bytes() == old
                    server.files = {name: server.files[name] for name in self.FILES}  # none but these are swapped
                else:
                    outcomes["fetched"] += 1
                    assert (folder / "model.safetensors").read_bytes() in served, f"seed {seed}"
                    assert not [path for path in folder.iterdir() if ".tensorkeep-" in path.name]
                    return outcomes
                assert time.monotonic() - begin < 20, f"seed {seed}"
        raise AssertionError(f"seed {seed}: never got through: {outcomes}")

    @pytest.mark.soak
    def test_whatever_a_server_does_whole_files_appear_or_none(self, tmp_path: Path, small_parts: None) -> None:
        outcomes: Counter[str] = Counter()
        for seed in range(SEED, SEED + N_FAULTS):
            outcomes += self.one_run(seed, tmp_path / str(seed))

        print(outcomes)
        assert outcomes["fetched"] == N_FAULTS
        assert outcomes.total() - N_FAULTS >= N_FAULTS // 2, "the faults did nothing"

    def test_a_cut_answer_goes_on_where_it_was_cut(self, tmp_path: Path) -> None:
        data = self.FILES["m/model.safetensors"]
        with FaultServer(self.FILES) as server:
            server.faults.extend([None, None, *[Fault(cut_at=2**18)] * 3])

            tensorkeep.fetch(remote(server.url + "m/model.safetensors", **QUICK), tmp_path)

            starts = [each.span[0] for each in server.requests[2:] if each.span]
        assert starts == [HEAD + n * 2**18 for n in range(4)]
        assert (tmp_path / "model.safetensors").read_bytes() == data

    def test_a_large_file_from_a_server_without_ranges_begins_again(self, tmp_path: Path) -> None:
        data = self.FILES["m/model.safetensors"]
        with FaultServer(self.FILES, ranges=False) as server:
            server.faults.extend([None, None, Fault(cut_at=2**19), Fault(cut_at=2**18)])

            tensorkeep.fetch(remote(server.url + "m/model.safetensors", **QUICK), tmp_path)

        assert (tmp_path / "model.safetensors").read_bytes() == data

    def test_what_a_server_without_ranges_sends_is_checked(self, tmp_path: Path) -> None:
        tensorkeep.save({"a": np.arange(150_000)}, tmp_path / "saved.safetensors")
        data = bytearray((tmp_path / "saved.safetensors").read_bytes())
        data[-1000] ^= 1
        with FaultServer({"m/x.safetensors": bytes(data)}, ranges=False) as server, pytest.raises(IntegrityError):
            tensorkeep.fetch(server.url + "m/x.safetensors", tmp_path)

        assert not (tmp_path / "x.safetensors").exists()

    def test_what_a_server_without_ranges_sent_does_not_come_again(self, tmp_path: Path) -> None:
        with FaultServer(self.FILES, ranges=False) as server:
            for _ in range(2):
                told: list[tuple[int, int]] = []
                url = server.url + "m/model.safetensors"
                tensorkeep.fetch(url, tmp_path, progress=lambda *so: told.append(so))  # noqa: B023 - called at once

        assert len(set(told)) == 1

    def test_nobody_tries_forever(self, tmp_path: Path) -> None:
        with FaultServer(self.FILES, ranges=False) as server:
            server.faults.extend([None, None, *[Fault(cut_at=2**19)] * 1000])
            with pytest.raises(TransportError, match=r"cut off|ended early"):
                tensorkeep.fetch(remote(server.url + "m/model.safetensors", **QUICK), tmp_path)

            assert len(server.requests) < 20

    def test_a_replacement_in_the_middle_is_noticed(self, tmp_path: Path, small_parts: None) -> None:
        with FaultServer(self.FILES) as server:
            server.faults.extend([None, None, None, Fault(swap=self.OTHER)])
            with pytest.raises(SourceChangedError):
                tensorkeep.fetch(remote(server.url + "m/model.safetensors", connections=1, **QUICK), tmp_path)
            assert not (tmp_path / "model.safetensors").exists()

            tensorkeep.fetch(remote(server.url + "m/model.safetensors", **QUICK), tmp_path)

        assert (tmp_path / "model.safetensors").read_bytes() == self.OTHER


def test_another_process_is_refused_while_one_fetches(server: Nginx, tmp_path: Path) -> None:
    pid = run(lambda: tensorkeep.fetch(remote(server.url + "slow/new/", connections=2), tmp_path / "x"))
    while not recorded(tmp_path):
        time.sleep(0.01)

    with pytest.raises(BusyError):
        tensorkeep.fetch(server.url + "new/", tmp_path / "x")

    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert is_equal(tensorkeep.load(tmp_path / "x"), weights(0))


def test_memory_is_bounded(tmp_path: Path) -> None:
    """Of a file of 256 MiB no more than the buffers are in memory, also from file systems that give whole answers."""
    code = """
import resource, sys
import numpy as np, tensorkeep
tensorkeep.fetch(sys.argv[1] + "small/", sys.argv[2] + "/small")
def anonymous():
    return next(int(line.split()[1]) * 1024 for line in open("/proc/self/status") if line.startswith("RssAnon"))
before, most = anonymous(), 0
def watch(done, total):
    global most
    most = max(most, anonymous() - before)
tensorkeep.fetch(sys.argv[1] + "large/", sys.argv[2] + "/large", durable=False, progress=watch)
print(most)
"""
    if sys.platform != "linux":
        pytest.skip("memory is counted in /proc")
    for name, n in (("small", 10), ("large", 2**25)):
        tmp_path.joinpath("served", name).mkdir(parents=True)
        tensorkeep.save({"w": np.zeros(n)}, tmp_path / "served" / name / "model.safetensors")
    with running_nginx(tmp_path / "served") as running:
        for url in (running.url, f"file://{tmp_path}/served/"):
            folder = tmp_path / url[:4]
            folder.mkdir()
            done = subprocess.run(
                [sys.executable, "-c", code, url, folder], capture_output=True, text=True, check=True
            )

            assert int(done.stdout) < 60 * 2**20, url


@pytest.mark.parametrize("reserves", [True, False])
def test_a_full_disk_is_an_error_and_the_next_fetch_goes_on(tmp_path: Path, reserves: bool) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    if shutil.which("unshare") is None:
        pytest.skip("no unshare(1) to mount a small disk with")
    may_mount = subprocess.run(
        ["unshare", "--mount", "--map-root-user", "mount", "-t", "tmpfs", "tmpfs", str(disk)],
        capture_output=True,
        check=False,
    )
    if may_mount.returncode:
        pytest.skip(f"no rights to mount a small disk: {may_mount.stderr!r}")
    script = SUPPORT / "fetching" / "fetch_on_a_small_disk.py"
    served = tmp_path / "served"
    tensorkeep.save_checkpoint(weights(0, 20), served, max_shard_size="500KB")
    with running_nginx(served) as running:
        done = subprocess.run(
            ["unshare", "--mount", "--map-root-user", sys.executable, script, disk, running.url, str(reserves)],
            capture_output=True,
            text=True,
            check=False,
        )

    assert done.returncode == 0, done.stderr
    failures = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(failures) >= 5
    assert all(failure["errno"] == errno.ENOSPC for failure in failures), failures
    assert all(failure["as before"] for failure in failures), failures
    assert any(failure["goes on"] for failure in failures), failures

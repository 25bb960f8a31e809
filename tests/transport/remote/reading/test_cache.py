"""Blocks kept on the disk: the same bytes, fewer requests, never more room than was said, and no secrets."""

from __future__ import annotations

import base64
import json
import os
import pickle
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import fsspec
import numpy as np
import pytest
import safetensors.numpy

import tensorkeep
from tensorkeep import remote
from tensorkeep.errors import AccessDeniedError, SourceChangedError, TransportError, UnsupportedError
from tensorkeep.transport.remote.reading import _block_files
from tests.support.remote.fault_server import Fault, FaultServer

BLOCK = 2**20
QUICK = {"pause_s": 0.001, "longest_pause_s": 0.01, "timeout_s": 2.0}
ONE = {"w": np.arange(2 * 2**20, dtype=np.int32).reshape(2048, 1024), "small": np.ones(5)}
TWO = {"w": ONE["w"] + 7, "small": np.zeros(5)}
FILE, OTHER = safetensors.numpy.save(ONE), safetensors.numpy.save(TWO)


@pytest.fixture
def server():
    with FaultServer({"x.safetensors": FILE}) as running:
        yield running


def at(server: FaultServer, cache: Path, **options):
    return remote(server.url + "x.safetensors", **QUICK | {"cache_dir": cache} | options)


def blocks_in(cache: Path) -> list[Path]:
    return sorted(path for path in cache.rglob("*-*") if path.is_file())


def nbytes_of(cache: Path) -> int:
    return sum(path.stat().st_size for path in cache.rglob("*") if path.is_file() and path.name != "lock")


def test_what_was_read_once_is_not_asked_for_again(server, tmp_path) -> None:
    for n_before in (0, 1):
        with tensorkeep.open(at(server, tmp_path)) as file:
            server.requests.clear()
            assert np.array_equal(file["w"][700], ONE["w"][700])
            assert np.array_equal(file["w"][:, 3:7], ONE["w"][:, 3:7])
            assert np.array_equal(file["w"].load(), ONE["w"])
            asked = sum(each.nbytes for each in server.requests)
        if n_before:
            assert asked == 0
        else:
            assert asked < 1.3 * len(FILE)


def test_another_process_makes_one_request(server, tmp_path) -> None:
    tensorkeep.load(at(server, tmp_path))
    server.requests.clear()
    code = """
import sys, tensorkeep
file = tensorkeep.open(tensorkeep.remote(sys.argv[1], cache_dir=sys.argv[2]))
print(int(file["w"][1500, 17]), int(file["w"][2047, 1023]), len(file))
"""
    done = subprocess.run(
        [sys.executable, "-c", code, server.url + "x.safetensors", tmp_path],
        capture_output=True,
        text=True,
        check=True,
    )

    assert done.stdout.split() == [str(ONE["w"][1500, 17]), str(ONE["w"][2047, 1023]), "2"]
    assert [each.span for each in server.requests] == [(0, 2**17)]


def test_a_column_asks_for_each_block_once(server, tmp_path) -> None:
    with tensorkeep.open(at(server, tmp_path)) as file:
        server.requests.clear()

        assert np.array_equal(file["w"][:, 5], ONE["w"][:, 5])

    starts = [each.span[0] for each in server.requests]
    assert len(starts) == len(set(starts)) <= 4
    assert all(start % BLOCK == 0 for start in starts)


def test_a_version_that_replaces_another_is_not_mixed_with_it(server, tmp_path) -> None:
    assert np.array_equal(tensorkeep.load(at(server, tmp_path))["w"], ONE["w"])
    with tensorkeep.open(at(server, tmp_path, head_nbytes=1024)) as old:
        server.files["x.safetensors"] = OTHER
        with tensorkeep.open(at(server, tmp_path)) as new:
            assert np.array_equal(old["w"][3], ONE["w"][3]), "blocks of the version that was opened"
            assert np.array_equal(new["w"][3], TWO["w"][3])
            assert np.array_equal(tensorkeep.load(at(server, tmp_path))["w"], TWO["w"])
        shutil.rmtree(tmp_path / "tensorkeep-blocks")
        with pytest.raises(SourceChangedError):
            old["w"][1000].sum()


@pytest.mark.parametrize("etags", ["weak", "none"])
def test_without_a_strong_etag_nothing_is_kept(tmp_path, etags) -> None:
    with FaultServer({"x.safetensors": FILE}, etags=etags) as server:
        assert np.array_equal(tensorkeep.load(at(server, tmp_path))["w"], ONE["w"])

    assert blocks_in(tmp_path) == []


def test_the_same_path_on_another_server_or_with_another_query_is_another_file(tmp_path) -> None:
    """Even where both call their versions the same, as servers do that make ETags of size and time."""
    with FaultServer({"x.safetensors": FILE}) as one, FaultServer({"x.safetensors": OTHER}) as other:
        other.digests[id(OTHER)] = OTHER, one_tag(one)
        assert np.array_equal(tensorkeep.load(at(one, tmp_path))["w"], ONE["w"])
        assert np.array_equal(tensorkeep.load(at(other, tmp_path))["w"], TWO["w"])
        n_blocks = len(blocks_in(tmp_path))
        tensorkeep.load(remote(one.url + "x.safetensors?file=2", cache_dir=tmp_path))

        assert len(blocks_in(tmp_path)) > n_blocks


def one_tag(server: FaultServer) -> str:
    tensorkeep.open(server.url + "x.safetensors")
    return server.digests[id(server.files["x.safetensors"])][1]


def test_signatures_of_a_url_say_nothing_of_the_file(server, tmp_path) -> None:
    for signature in ("1", "2"):
        url = f"{server.url}x.safetensors?X-Amz-Signature={signature}&X-Amz-Date={signature}"
        server.requests.clear()
        tensorkeep.load(remote(url, cache_dir=tmp_path))

    assert len(server.requests) == 1


@pytest.mark.parametrize("damage", ["flipped", "cut", "emptied", "another", "a directory"])
def test_a_damaged_block_is_noticed_and_asked_for_again(server, tmp_path, damage) -> None:
    tensorkeep.load(at(server, tmp_path))
    first, second, *_ = blocks_in(tmp_path)
    data = bytearray(first.read_bytes())
    if damage == "flipped":
        data[-100] ^= 1
    elif damage == "cut":
        del data[-1:]
    elif damage == "emptied":
        data.clear()
    elif damage == "another":
        data[:] = second.read_bytes()
    first.unlink()
    if damage == "a directory":
        first.mkdir()
    else:
        first.write_bytes(data)
    server.requests.clear()

    assert np.array_equal(tensorkeep.load(at(server, tmp_path))["w"], ONE["w"])

    assert len(server.requests) == 2
    server.requests.clear()
    tensorkeep.load(at(server, tmp_path))
    assert len(server.requests) == (2 if damage == "a directory" else 1)


class TestRoom:
    def test_it_is_never_more_than_was_said_and_what_is_used_stays(self, server, tmp_path) -> None:
        most = 5 * BLOCK
        for number in range(4):
            server.files[f"{number}.safetensors"] = safetensors.numpy.save({"w": ONE["w"] + number})
            path = remote(f"{server.url}{number}.safetensors", cache_dir=tmp_path, cache_nbytes=most)
            with tensorkeep.open(path) as file:
                for row in range(0, 2048, 100):
                    assert np.array_equal(file["w"][row], ONE["w"][row] + number)
                    assert nbytes_of(tmp_path) <= most
            kept = blocks_in(tmp_path)
            assert kept
        server.requests.clear()
        with tensorkeep.open(path) as file:
            file["w"][2000].sum()
            assert len(server.requests) == 1, "the block that was used last is there"

    def test_no_room_at_all(self, server, tmp_path) -> None:
        for most in (0, 1000, BLOCK):
            assert np.array_equal(tensorkeep.load(at(server, tmp_path, cache_nbytes=most))["w"], ONE["w"])
            assert nbytes_of(tmp_path) <= most

    def test_what_killed_processes_leave_is_counted_and_goes(self, server, tmp_path) -> None:
        tensorkeep.load(at(server, tmp_path))
        block = blocks_in(tmp_path)[0]
        Path(f"{block}.new").write_bytes(bytes(3 * BLOCK))
        (tmp_path / "tensorkeep-blocks" / "lock").write_bytes(b"rubbish")

        server.files["x.safetensors"] = OTHER
        tensorkeep.load(at(server, tmp_path, cache_nbytes=4 * BLOCK))

        assert nbytes_of(tmp_path) <= 4 * BLOCK
        assert not list(tmp_path.rglob("*.new"))

    def test_a_full_disk_is_no_error(self, server, tmp_path) -> None:
        if shutil.which("unshare") is None:
            pytest.skip("no unshare(1) to mount a small disk with")
        code = """
import subprocess, sys, os
import tensorkeep
disk, url = sys.argv[1:]
for size in ("4k", "16k", "3m"):
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", disk], check=True)
    w = tensorkeep.load(tensorkeep.remote(url, cache_dir=disk))["w"]
    assert int(w[2047, 1023]) == 2 * 2**20 - 1
    print(sum(len(files) for _, _, files in os.walk(disk)))
    subprocess.run(["umount", disk], check=True)
"""
        disk = tmp_path / "disk"
        disk.mkdir()
        may_mount = subprocess.run(
            ["unshare", "--mount", "--map-root-user", "mount", "-t", "tmpfs", "tmpfs", disk], check=False
        )
        if may_mount.returncode:
            pytest.skip("no rights to mount a small disk")
        done = subprocess.run(
            [
                *("unshare", "--mount", "--map-root-user", sys.executable, "-c", code),
                *(disk, server.url + "x.safetensors"),
            ],
            capture_output=True,
            text=True,
            check=False,
        )

        assert done.returncode == 0, done.stderr
        assert int(done.stdout.split()[-1]) >= 2


class TestSecrets:
    def test_nothing_secret_is_in_names_or_contents_and_nobody_else_may_look(self, tmp_path) -> None:
        with FaultServer({"x.safetensors": FILE}, user="me:pass-word") as server:
            url = f"http://me:pass-word@{server.host}/x.safetensors?token=so-secret"
            headers = {"X-Key": "head-secret"}
            tensorkeep.load(remote(url, cache_dir=tmp_path, headers=headers))
            assert blocks_in(tmp_path)

        before = os.umask(0)
        os.umask(before)
        for path in (tmp_path / "tensorkeep-blocks", *tmp_path.rglob("tensorkeep-blocks/**/*")):
            assert not any(secret in str(path) for secret in ("pass-word", "so-secret", "head-secret"))
            assert path.stat().st_mode & 0o777 == (0o700 if path.is_dir() else 0o600)
            if path.is_file():
                data = path.read_bytes()
                assert not any(secret in data for secret in (b"pass-word", b"so-secret", b"head-secret"))

    def test_who_may_not_read_the_file_gets_nothing_of_the_blocks(self, tmp_path) -> None:
        with FaultServer({"x.safetensors": FILE}, user="me:pass-word") as server:
            basic = base64.b64encode(b"me:pass-word").decode()
            tensorkeep.load(at(server, tmp_path, headers={"Authorization": f"Basic {basic}"}))

            with pytest.raises(AccessDeniedError, match="401"):
                tensorkeep.load(at(server, tmp_path))

    def test_a_folder_that_others_can_write_to_is_refused(self, server, tmp_path) -> None:
        (tmp_path / "tensorkeep-blocks").mkdir(mode=0o777)
        (tmp_path / "tensorkeep-blocks").chmod(0o777)

        with pytest.raises(AccessDeniedError, match="not this user's alone"):
            tensorkeep.load(at(server, tmp_path))

    def test_a_link_in_the_place_of_a_block_is_not_followed(self, server, tmp_path) -> None:
        tensorkeep.load(at(server, tmp_path))
        block = blocks_in(tmp_path)[0]
        shutil.move(block, tmp_path / "elsewhere")
        block.symlink_to(tmp_path / "elsewhere")
        server.requests.clear()

        assert np.array_equal(tensorkeep.load(at(server, tmp_path))["w"], ONE["w"])
        assert len(server.requests) == 2


def test_a_cache_that_cannot_be_made(server, tmp_path) -> None:
    (tmp_path / "file").touch()

    with pytest.raises(TransportError, match="could not make the cache"):
        tensorkeep.load(at(server, tmp_path / "file"))


def test_stores_that_the_caller_has_made_have_no_url_to_keep_blocks_by() -> None:
    with pytest.raises(UnsupportedError):
        remote(fsspec.filesystem("memory"), "x", cache_dir="/nowhere")


def test_a_fetch_keeps_no_blocks(server, tmp_path) -> None:
    tensorkeep.fetch(at(server, tmp_path / "cache"), tmp_path / "here")

    assert not (tmp_path / "cache").exists()
    assert np.array_equal(tensorkeep.load(tmp_path / "here" / "x.safetensors")["w"], ONE["w"])


def test_an_open_file_travels_with_its_cache(server, tmp_path) -> None:
    with tensorkeep.open(at(server, tmp_path)) as file:
        file["w"].load()
        copy = pickle.loads(pickle.dumps(file["w"]))
        server.requests.clear()

        assert np.array_equal(copy[100], ONE["w"][100])

    assert server.requests == []


def test_trouble_is_waited_for_inside_of_a_block(server, tmp_path) -> None:
    with tensorkeep.open(at(server, tmp_path)) as file:
        server.requests.clear()
        server.faults.extend([Fault(cut_at=2**17), Fault(status=503), Fault(cut_at=2**18), Fault(close=True)])

        assert np.array_equal(file["w"].load(), ONE["w"])

    with tensorkeep.open(at(server, tmp_path / "other", attempts=3)) as file:
        server.requests.clear()
        server.faults.extend([Fault(status=503)] * 100)
        with pytest.raises(TransportError, match="503"):
            file["w"][1000].sum()
        assert len(server.requests) == 3, "attempts are not multiplied"


@pytest.mark.parametrize("seed", range(6))
def test_right_bytes_or_an_error_for_random_faults(tmp_path, seed) -> None:
    chance = random.Random(seed)
    with FaultServer({"x.safetensors": FILE}) as server:
        for _ in range(12):
            n = chance.randrange(2**20)
            server.faults.extend(
                chance.choice([
                    None,
                    None,
                    Fault(cut_at=n),
                    Fault(status=503),
                    Fault(shorter_by=n),
                    Fault(length_by=n),
                    Fault(swap=chance.choice([FILE, OTHER])),
                ])
                for _ in range(6)
            )
            try:
                found = tensorkeep.load(at(server, tmp_path, cache_nbytes=chance.choice([3, 30]) * BLOCK))["w"]
            except TransportError:
                continue
            assert np.array_equal(found, ONE["w"]) or np.array_equal(found, TWO["w"])


PROGRAM = """
import json, random, sys, threading
import numpy as np, tensorkeep
url, cache, seed, n_rounds = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
url = tensorkeep.remote(url, cache_dir=cache, cache_nbytes=5 * 2**20, head_nbytes=1024)
chance = random.Random(seed)
def work():
    for _ in range(n_rounds):
        with tensorkeep.open(url) as file:
            for row in [chance.randrange(2048) for _ in range(4)]:
                assert (file["w"][row] == np.arange(row * 1024, row * 1024 + 1024)).all(), row
threads = [threading.Thread(target=work) for _ in range(3)]
for thread in threads: thread.start()
for thread in threads: thread.join()
print("done")
"""


def test_several_processes_and_threads_share_it(server, tmp_path) -> None:
    command = [sys.executable, "-c", PROGRAM, server.url + "x.safetensors", tmp_path]
    processes = [subprocess.Popen([*command, str(seed), "15"], stdout=subprocess.PIPE) for seed in range(3)]
    while any(process.poll() is None for process in processes):
        assert nbytes_of_or_none(tmp_path) <= 5 * BLOCK
        time.sleep(0.02)

    assert [process.communicate()[0] for process in processes] == [b"done\n"] * 3


def nbytes_of_or_none(cache: Path) -> int:
    """Add up sizes while others remove files."""
    total = 0
    for folder, _, names in os.walk(cache):
        for name in names:
            with suppress(FileNotFoundError):
                total += os.path.getsize(os.path.join(folder, name))
    return total - 32  # what the lock says


def test_killed_at_any_time_the_bound_holds_and_the_bytes_are_right(server, tmp_path) -> None:
    chance = random.Random(2)
    command = [sys.executable, "-c", PROGRAM, server.url + "x.safetensors", tmp_path]
    for seed in range(4):
        process = subprocess.Popen([*command, str(seed), "1000"], stdout=subprocess.PIPE)
        while not blocks_in(tmp_path):
            time.sleep(0.01)
        time.sleep(chance.uniform(0, 0.4))
        process.send_signal(signal.SIGKILL)
        process.communicate()

        assert nbytes_of(tmp_path) <= 5 * BLOCK
    done = subprocess.run([*command, "9", "5"], capture_output=True, check=True)
    assert done.stdout == b"done\n"
    assert nbytes_of(tmp_path) <= 5 * BLOCK


def test_a_forked_process_can_go_on_while_threads_read(server, tmp_path) -> None:
    stop = threading.Event()

    def work() -> None:
        while not stop.is_set():
            tensorkeep.load(at(server, tmp_path, cache_nbytes=2 * BLOCK))
            time.sleep(0.1)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        for _ in range(3):
            pid = os.fork()
            if pid == 0:
                signal.alarm(20)
                found = tensorkeep.load(at(server, tmp_path, cache_nbytes=2 * BLOCK))["w"]
                os._exit(0 if np.array_equal(found, ONE["w"]) else 1)
            assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    finally:
        stop.set()
        thread.join()


def test_a_process_that_was_forked_in_the_middle_keeps_no_lock(tmp_path) -> None:
    blocks = _block_files.BlockFiles(str(tmp_path), 10**6)
    with blocks._locked() as lock:
        assert lock is not None
        pid = os.fork()
        if pid == 0:
            time.sleep(30)
            os._exit(0)
    try:
        blocks.put("ab" * 20, 0, b"bytes")

        assert blocks.get("ab" * 20, 0) == b"bytes"
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def test_who_holds_the_lock_for_long_stops_nobody(server, tmp_path) -> None:
    blocks = _block_files.BlockFiles(str(tmp_path), 10**6)
    with blocks._locked():
        begin = time.monotonic()

        assert np.array_equal(tensorkeep.load(at(server, tmp_path))["w"], ONE["w"])

        assert time.monotonic() - begin < 3
    assert blocks_in(tmp_path) == []


def test_blocks_of_file_systems_without_locks(server, tmp_path, monkeypatch) -> None:
    def no_locks(fd: int) -> bool:
        raise OSError(95, os.strerror(95))

    monkeypatch.setattr(_block_files, "try_lock", no_locks)

    assert np.array_equal(tensorkeep.load(at(server, tmp_path))["w"], ONE["w"])


def test_the_options_are_named(server, tmp_path) -> None:
    with pytest.raises(UnsupportedError, match="cache_directory"):
        tensorkeep.open(remote(server.url + "x.safetensors", cache_directory=str(tmp_path)))
    assert json.dumps(os.listdir(tmp_path)) == "[]"

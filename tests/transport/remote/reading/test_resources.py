"""What is open, running or in memory while remote files are read, and after."""

from __future__ import annotations

import gc
import os
import pickle
import subprocess
import sys
import threading
from multiprocessing import get_context

import numpy as np
import psutil
import pytest
import safetensors.numpy

import tensorkeep
from tensorkeep import remote
from tensorkeep.errors import SourceChangedError, TransportError
from tensorkeep.transport import open_source
from tensorkeep.transport.remote import RemoteSource
from tests.support.remote.fault_server import FaultServer

W = np.random.default_rng(0).standard_normal((500, 600), np.float32)
FILE = safetensors.numpy.save({"w": W, "v": W[::-1].copy()})
SMALL = {"head_nbytes": 2**12, "request_nbytes": 2**16, "connections": 8}


@pytest.fixture
def server():
    with FaultServer({"x.safetensors": FILE}) as running:
        yield running


def n_sockets_to(server) -> int:
    """Count the sockets of this process that a client of the server holds."""
    port = int(server.host.rpartition(":")[2])
    connections = psutil.Process().net_connections("tcp4")
    return sum(bool(each.raddr) and each.raddr.port == port for each in connections)


def n_own_threads() -> int:
    return sum(thread.name.startswith("tensorkeep") for thread in threading.enumerate())


def test_nothing_is_left_after_closing(server) -> None:
    before = n_own_threads()  # of tests that ran in this process earlier
    with tensorkeep.open(remote(server.url + "x.safetensors", **SMALL)) as file:
        assert np.array_equal(file["w"].load(), W)
        assert n_sockets_to(server) >= 1

    del file
    gc.collect()
    assert n_sockets_to(server) == 0
    assert n_own_threads() <= before


def test_nothing_is_left_after_an_error(server) -> None:
    for _ in range(3):
        with pytest.raises(TransportError):
            tensorkeep.open(server.url + "nothing.safetensors")

    gc.collect()
    assert n_sockets_to(server) == 0


def test_connections_are_used_again(server) -> None:
    with tensorkeep.open(remote(server.url + "x.safetensors", **SMALL | {"connections": 1})) as file:
        for row in range(0, 500, 50):
            file["w"][row]

    assert len(server.requests) > 8
    assert len({request.client for request in server.requests}) == 1


def test_a_thousand_files_at_once(server) -> None:
    files = [tensorkeep.open(remote(server.url + "x.safetensors", head_nbytes=512)) for _ in range(1000)]

    assert n_sockets_to(server) < 20
    assert np.array_equal(files[999]["w"][7], W[7])
    for file in files:
        file.close()


def test_threads_share_a_file(server) -> None:
    with tensorkeep.open(remote(server.url + "x.safetensors", **SMALL)) as file:
        results: list[bool] = []

        def work(row: int) -> None:
            results.extend(np.array_equal(file["v"][row + step], W[499 - row - step]) for step in range(20))
            results.append(np.array_equal(file["w"].load(), W))

        threads = [threading.Thread(target=work, args=(row,)) for row in (0, 100, 200, 300)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    assert results == [True] * 84


def read_rows(file, rows) -> bool:
    return all(np.array_equal(file["w"][row], W[row]) for row in rows)


def _read_in_child(file, rows, pipe) -> None:
    pipe.send(read_rows(file, rows))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_after_a_fork_both_processes_read(server) -> None:
    """They must not share connections: each would get answers that are meant for the other."""
    context = get_context("fork")
    with tensorkeep.open(remote(server.url + "x.safetensors", **SMALL | {"connections": 1})) as file:
        assert read_rows(file, range(0, 500, 100))
        ours, theirs = context.Pipe()
        child = context.Process(target=_read_in_child, args=(file, range(1, 500, 7), theirs))
        child.start()

        assert read_rows(file, range(2, 500, 7))
        assert ours.recv() is True
        child.join()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_obstore_after_a_fork_is_an_error_and_no_deadlock(tmp_path) -> None:
    code = """
import os, sys
import tensorkeep, obstore.store
from tensorkeep import remote
path = remote(obstore.store.LocalStore(sys.argv[1]), "x.safetensors", head_nbytes=512)
file = tensorkeep.open(path)
file["w"][0]
if os.fork() == 0:
    for read in (lambda: file["w"][1], lambda: tensorkeep.open(path)):
        try:
            read()
        except tensorkeep.errors.TransportError as error:
            print(error, flush=True)
    os._exit(0)
os.wait()
file["w"][2]
"""
    tmp_path.joinpath("x.safetensors").write_bytes(FILE)

    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code, str(tmp_path)],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )

    assert done.stdout.count("forked after its first use") == 2


def test_what_is_open_travels_to_another_process(server) -> None:
    with tensorkeep.open(remote(server.url + "x.safetensors", headers={"X-Who": "me"}, **SMALL)) as file:
        tensor, copy = (pickle.loads(pickle.dumps(each)) for each in (file["w"], file))

        assert np.array_equal(tensor[3:5], W[3:5])
        assert np.array_equal(copy["v"].load(), W[::-1])
        assert all(request.headers["x-who"] == "me" for request in server.requests)

        pickled = pickle.dumps(file["w"])
        server.files["x.safetensors"] = safetensors.numpy.save({"w": W * 2, "v": W})
        with pytest.raises(SourceChangedError):
            pickle.loads(pickled)


def test_a_path_travels_with_its_options(server) -> None:
    path = remote(server.url + "x.safetensors", headers={"X-Who": "me"})

    with tensorkeep.open(pickle.loads(pickle.dumps(path))) as file:
        assert np.array_equal(file["w"][0], W[0])

    assert {request.headers["x-who"] for request in server.requests} == {"me"}


def test_a_source_says_what_was_read_and_no_more(server) -> None:
    source = open_source(remote(server.url + "x.safetensors", **SMALL))
    assert isinstance(source, RemoteSource)
    assert source.nbytes == len(FILE)

    buffers = [bytearray(n) for n in (10, 0, 100_000, 5, 5, 10)]
    offsets = [3, 17, 50_000, 60_000, 60_002, 149_995]  # some of them overlap
    source.read_into(zip(offsets, map(memoryview, buffers), strict=True))

    for offset, buffer in zip(offsets, buffers, strict=True):
        assert buffer == FILE[offset : offset + len(buffer)]
    source.close()
    with pytest.raises(TransportError, match="closed"):
        source.read_into([(5000, memoryview(bytearray(1)))])


def test_the_memory_of_a_load_is_that_of_the_result() -> None:
    code = """
import resource, sys
import numpy as np, tensorkeep
from tensorkeep import remote
tensorkeep.load(remote(sys.argv[1] + "small.safetensors"))
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
w = tensorkeep.load(sys.argv[1] + "x.safetensors")["w"]
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024 - w.nbytes)
"""
    large = np.arange(2**25, dtype=np.int32)
    files = {"x.safetensors": safetensors.numpy.save({"w": large}), "small.safetensors": FILE}
    with FaultServer(files) as server:
        done = subprocess.run([sys.executable, "-c", code, server.url], capture_output=True, text=True, check=True)

    assert int(done.stdout) < 16 * 2**20


def test_the_threads_of_obstore_do_not_grow(tmp_path) -> None:
    code = """
import os, sys
import tensorkeep, obstore.store
from tensorkeep import remote
count = lambda: len(os.listdir("/proc/self/task"))
open_one = lambda: tensorkeep.load(remote(obstore.store.LocalStore(sys.argv[1]), "x.safetensors"))
for _ in range(20): open_one()
before, fds = count(), len(os.listdir("/proc/self/fd"))
for _ in range(400): open_one()
print(count() - before, len(os.listdir("/proc/self/fd")) - fds)
"""
    if sys.platform != "linux":
        pytest.skip("threads are counted in /proc")
    tmp_path.joinpath("x.safetensors").write_bytes(FILE)

    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=True)

    more_threads, more_descriptors = map(int, done.stdout.split())
    assert more_threads <= 150  # its pool of threads for files comes and goes; a leak would be 400
    assert more_descriptors <= 0

"""Whatever a server does: the right bytes or an error of ours, never wrong bytes, and soon."""

from __future__ import annotations

import random
import subprocess
import sys
import threading
import time
from collections import Counter
from itertools import pairwise

import msgspec
import numpy as np
import pytest
import safetensors.numpy

import tensorkeep
from tensorkeep import remote
from tensorkeep.errors import (
    AccessDeniedError,
    RangeNotServedError,
    SourceChangedError,
    TensorkeepError,
    TransientError,
    TransportError,
)
from tests.support.remote.fault_server import Fault, FaultServer
from tests.support.soak import SEED, rounds

N_RUNS = rounds(40, 5000)
LONGEST_S = 20
QUICK = {"pause_s": 0.001, "longest_pause_s": 0.01, "timeout_s": 1.0}
SMALL = {"head_nbytes": 2**10, "request_nbytes": 2**13, "gap_nbytes": 256, "connections": 4}


def tensors_of(seed: int, n_rows: int = 300) -> dict[str, np.ndarray]:
    generator = np.random.default_rng(seed)
    return {
        "a": generator.integers(0, 2**31, (n_rows, 40), np.int32),
        "b": generator.random((7, 11, 13)).astype(np.float32),
        "c": generator.integers(0, 255, 5000, np.uint8),
        "d": np.full((3,), seed, np.float64),
    }


def is_equal(found: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> bool:
    return found.keys() == expected.keys() and all(np.array_equal(found[name], expected[name]) for name in expected)


ONE, TWO = tensors_of(1), tensors_of(2)
FILE, OTHER = safetensors.numpy.save(ONE), safetensors.numpy.save(TWO)
LONGER = safetensors.numpy.save(tensors_of(3, 400))
VERSIONS = [ONE, TWO, tensors_of(3, 400)]


@pytest.fixture
def server():
    with FaultServer({"x.safetensors": FILE}) as running:
        yield running


def shown(fault: Fault) -> str:
    return " ".join(
        f"{name}={value}" for name, value in msgspec.structs.asdict(fault).items() if value not in {None, 0}
    )


def at(server: FaultServer, **options):
    return remote(server.url + "x.safetensors", **QUICK | SMALL | options)


def load(server: FaultServer, **options) -> dict[str, np.ndarray]:
    return tensorkeep.load(at(server, **options))


PARTS = ["joined", "first", "reversed", "fewer", "twice", "shifted", "total", "headless", "type", "short", "last"]


def random_fault(chance: random.Random, server: FaultServer) -> Fault:
    n = chance.choice([0, 1, chance.randrange(9000), chance.randrange(400)])
    faults = [
        lambda: Fault(close=True),
        lambda: Fault(garbage=True),
        lambda: Fault(
            status=chance.choice([500, 502, 503, 504, 429]), retry_after=chance.choice([None, "0", "1", "x"])
        ),
        lambda: Fault(status=chance.choice([400, 401, 403, 404, 410, 418, 501])),
        lambda: Fault(delay_s=chance.random() / 100),
        lambda: Fault(delay_s=chance.random() / 100, stall_at=n),
        lambda: Fault(cut_at=n),
        lambda: Fault(whole=True),
        lambda: Fault(whole=True, cut_at=n),
        lambda: Fault(shorter_by=n),
        lambda: Fault(shifted_by=chance.choice([1, n])),
        lambda: Fault(length_by=chance.choice([-1, 1, n, -n])),
        lambda: Fault(total_by=chance.choice([-1, 1, n])),
        lambda: Fault(no_content_range=True),
        lambda: Fault(encoding=chance.choice(["gzip", "br"])),
        lambda: Fault(redirect=f"{server.url}x.safetensors?{n}"),
        lambda: Fault(redirect="ftp://nowhere/"),
        lambda: Fault(swap=chance.choice([OTHER, LONGER, FILE])),
        lambda: Fault(parts=chance.choice(PARTS)),
    ]
    return chance.choice(faults)()


def read_something(chance: random.Random, server: FaultServer) -> None:
    """Read in a random way, and hold what comes against the versions that the file may have had."""
    options = {
        "head_nbytes": chance.choice([1, 8, 300, 2**12, 2**20]),
        "request_nbytes": chance.choice([2**10, 2**13, 2**20]),
        "gap_nbytes": chance.choice([0, 64, 2**14]),
        "connections": chance.choice([1, 2, 4]),
        "attempts": chance.choice([2, 6]),
        "whole_nbytes": chance.choice([0, 2**20]),
    }
    kind = chance.randrange(4)
    if kind == 0:
        found = load(server, **options)
        assert any(is_equal(found, version) for version in VERSIONS)
        return
    with tensorkeep.open(at(server, **options)) as file:
        if kind == 1:
            parts = [file["a"][10:200, 5:9], file["b"][::3, ::-2], file["c"][[1, 4000, 7]]]
            assert any(
                np.array_equal(parts[0], version["a"][10:200, 5:9])
                and np.array_equal(parts[1], version["b"][::3, ::-2])
                and np.array_equal(parts[2], version["c"][[1, 4000, 7]])
                for version in VERSIONS
            )
        else:
            found = {name: file[name].load() for name in chance.sample(sorted(file), len(file))}
            assert any(is_equal(found, version) for version in VERSIONS)


def one_run(seed: int) -> str:
    chance = random.Random(seed)
    ranges = chance.random() < 0.9
    etags, many = chance.choice(["strong", "weak", "none"]), chance.random() < 0.8
    with FaultServer({"x.safetensors": FILE}, etags=etags, ranges=ranges, many=many) as server:
        trouble = chance.choice([0.05, 0.3, 0.7])
        server.faults.extend(
            random_fault(chance, server) if chance.random() < trouble else None
            for _ in range(chance.randrange(1, 60))
        )
        begin = time.monotonic()
        try:
            read_something(chance, server)
            outcome = "read"
        except TensorkeepError as error:
            outcome = type(error).__name__
        assert time.monotonic() - begin < LONGEST_S, f"seed {seed}"
        return outcome


@pytest.mark.soak
def test_right_bytes_or_an_error_of_ours_for_any_faults() -> None:
    outcomes = Counter(one_run(seed) for seed in range(SEED, SEED + N_RUNS))

    print(outcomes)
    assert outcomes["read"] >= N_RUNS // 5
    assert outcomes.total() - outcomes["read"] >= N_RUNS // 5, "the faults did nothing"


@pytest.mark.parametrize(
    "fault",
    [
        Fault(close=True),
        Fault(garbage=True),
        Fault(status=500),
        Fault(status=503, retry_after="1"),
        Fault(status=429, retry_after="no number"),
        Fault(cut_at=0),
        Fault(cut_at=100),
        Fault(length_by=-10),
        Fault(length_by=10),
        Fault(shorter_by=10),
        Fault(delay_s=1.2),
        Fault(stall_at=50, delay_s=1.2),
    ],
    ids=lambda value: shown(value) if isinstance(value, Fault) else "",
)
def test_what_passes_is_waited_for(server, fault) -> None:
    for n_before in (0, 2):  # in the first request, and in a later one
        server.faults.extend([None] * n_before + [fault])

        assert is_equal(load(server), ONE)
        server.faults.clear()


ROWS = np.arange(0, 300, 4)


class TestSeveralRanges:
    def test_rows_far_apart_are_one_request(self, server) -> None:
        with tensorkeep.open(at(server, gap_nbytes=16)) as file:
            assert np.array_equal(file["a"][ROWS], ONE["a"][ROWS])

        assert [len(each.spans) for each in server.requests[1:]] == [51, 24]  # as many as `request_nbytes` holds
        assert sum(each.nbytes for each in server.requests[1:]) == 75 * 160

    @pytest.mark.parametrize("parts", PARTS)
    @pytest.mark.parametrize("n_before", [1, 2])
    def test_what_is_no_answer_to_that_is_not_taken(self, server, parts, n_before) -> None:
        server.faults.extend([None] * n_before + [Fault(parts=parts)])

        with tensorkeep.open(at(server, gap_nbytes=16)) as file:
            assert np.array_equal(file["a"][ROWS], ONE["a"][ROWS])

    def test_a_server_of_single_ranges_is_asked_for_several_once(self, server) -> None:
        server.many = False

        with tensorkeep.open(at(server)) as file:
            for rows in (ROWS, ROWS + 1):
                assert np.array_equal(file["a"][rows], ONE["a"][rows])

        assert [len(each.spans) > 1 for each in server.requests].count(True) == 1

    @pytest.mark.parametrize("cut_at", [0, 1, 60, 100, 200, 1000, 4000])
    def test_a_cut_answer_goes_on_in_the_middle_of_a_part(self, server, cut_at) -> None:
        server.faults.extend([None, Fault(cut_at=cut_at), None, Fault(cut_at=cut_at)])

        with tensorkeep.open(at(server, gap_nbytes=16)) as file:
            assert np.array_equal(file["a"][ROWS], ONE["a"][ROWS])

    def test_a_file_that_was_replaced_meanwhile(self, server) -> None:
        with tensorkeep.open(at(server, gap_nbytes=16)) as file:
            server.files["x.safetensors"] = OTHER
            with pytest.raises(SourceChangedError):
                file["a"][ROWS]


def test_a_range_that_is_ignored_once_is_asked_for_again(server) -> None:
    server.faults.extend([None, Fault(whole=True), Fault(whole=True)])

    assert is_equal(load(server), ONE)


def test_a_cut_answer_goes_on_where_it_was_cut(server) -> None:
    server.faults.extend([None, *[Fault(cut_at=2**17)] * 3])
    server.files["x.safetensors"] = safetensors.numpy.save({"w": np.arange(2**17, dtype=np.int32)})

    found = load(server, request_nbytes=2**20)["w"]

    assert np.array_equal(found, np.arange(2**17))
    asked = [each.span[0] for each in server.requests]
    assert [later - earlier for earlier, later in pairwise(asked[1:])] == [2**17] * 3


def test_a_server_that_asks_for_a_pause_gets_it(server) -> None:
    server.faults.append(Fault(status=503, retry_after="1"))
    begin = time.monotonic()

    tensorkeep.open(at(server, longest_pause_s=10))

    assert time.monotonic() - begin >= 1


def test_no_pause_is_longer_than_the_timeout(server) -> None:
    server.faults.extend([Fault(status=503, retry_after="999999")] * 100)
    begin = time.monotonic()

    with pytest.raises(TransientError):
        tensorkeep.load(remote(server.url + "x.safetensors", timeout_s=0.1))

    assert time.monotonic() - begin < 5
    assert len(server.requests) == 6


def test_nobody_waits_forever(server) -> None:
    server.faults.extend([Fault(status=503, retry_after="86400")] * 100)
    begin = time.monotonic()

    with pytest.raises(TransportError, match=r"could not be read.*status 503"):
        tensorkeep.open(at(server, attempts=4))

    assert time.monotonic() - begin < 5
    assert len(server.requests) == 4


def test_an_answer_that_comes_in_crumbs_does_not_count_as_progress(server) -> None:
    server.faults.extend([None, *[Fault(cut_at=1)] * 1000])

    with pytest.raises(TransportError, match=r"ended early|cut off"):
        load(server, connections=1)

    assert len(server.requests) < 20


@pytest.mark.parametrize("etags", ["strong", "weak", "none"])
@pytest.mark.parametrize("swap", [OTHER, LONGER], ids=["as-long", "longer"])
def test_a_file_that_is_replaced_is_never_mixed(etags, swap) -> None:
    with FaultServer({"x.safetensors": FILE}, etags=etags) as server, tensorkeep.open(at(server)) as file:
        before = file["b"].load()
        server.files["x.safetensors"] = swap

        with pytest.raises(SourceChangedError, match="replaced by another"):
            file["a"].load()

        assert np.array_equal(before, ONE["b"])


@pytest.mark.parametrize(
    ("fault", "kind", "text"),
    [
        (Fault(status=404), SourceChangedError, "removed"),
        (Fault(status=410), SourceChangedError, "removed"),
        (Fault(status=401), AccessDeniedError, "401"),
        (Fault(status=403), AccessDeniedError, "403"),
        (Fault(status=418), TransportError, "418"),
        (Fault(shifted_by=1), TransportError, "another range"),
        (Fault(no_content_range=True), TransportError, "does not say which range"),
        (Fault(encoding="gzip"), TransportError, "compressed"),
        (Fault(redirect="file:///etc/passwd"), TransportError, "redirects"),
        (Fault(redirect="http://[::1"), TransportError, "invalid URL"),
        (Fault(total_by=1), SourceChangedError, "replaced"),
    ],
    ids=lambda value: shown(value) if isinstance(value, Fault) else "",
)
def test_what_does_not_pass_is_said_at_once(server, fault, kind, text) -> None:
    file = tensorkeep.open(at(server))
    server.requests.clear()
    server.faults.extend([fault])

    with pytest.raises(kind, match=text):
        file["a"][200].sum()

    assert len(server.requests) == 1


def test_redirects_without_end(server) -> None:
    server.faults.extend([Fault(redirect=server.url + "x.safetensors")] * 100)

    with pytest.raises(TransportError, match="too many redirects"):
        tensorkeep.open(at(server))


def test_nobody_listens() -> None:
    with FaultServer({}) as gone:
        url = gone.url

    with pytest.raises(TransportError, match=r"could not be read.*refused\. Check the address"):
        tensorkeep.open(remote(url + "x.safetensors", **QUICK))


@pytest.mark.parametrize("etags", ["strong", "none"])
def test_a_small_file_is_taken_whole_where_no_ranges_are_served(etags) -> None:
    with FaultServer({"x.safetensors": FILE}, ranges=False, etags=etags) as server:
        assert is_equal(load(server), ONE)
        assert len(server.requests) == 1

        with pytest.raises(RangeNotServedError, match="whole files only"):
            load(server, whole_nbytes=1000)


@pytest.mark.parametrize("head_nbytes", [64, 2**11])
def test_the_beginning_of_a_large_file_is_read_where_no_ranges_are_served(head_nbytes, tmp_path) -> None:
    limits = {"head_nbytes": head_nbytes, "whole_nbytes": 2**12}
    tensorkeep.save(ONE, tmp_path / "saved.safetensors")
    data = (tmp_path / "saved.safetensors").read_bytes()
    with FaultServer({"x.safetensors": data}, ranges=False) as server:
        opened = tensorkeep.open(at(server, **limits))
        assert {name: lazy.shape for name, lazy in opened.items()} == {name: one.shape for name, one in ONE.items()}
        assert len(server.requests) <= 3
        for read in (tensorkeep.load, tensorkeep.verify):
            with pytest.raises(RangeNotServedError, match=r"tensorkeep\.fetch downloads it"):
                read(at(server, **limits))

        tensorkeep.fetch(at(server, **limits), tmp_path / "x.safetensors")
    assert is_equal(tensorkeep.load(tmp_path / "x.safetensors"), ONE)


def test_the_beginning_is_asked_for_again_if_it_was_cut_off() -> None:
    with FaultServer({"x.safetensors": FILE}, ranges=False) as server:
        server.faults.extend([None, Fault(cut_at=5)])
        assert len(tensorkeep.open(at(server, head_nbytes=16, whole_nbytes=1000))) == len(ONE)


def test_an_empty_file_is_one(server) -> None:
    server.files["x.safetensors"] = b""

    with pytest.raises(tensorkeep.errors.HeaderError):
        tensorkeep.open(at(server))


def test_many_threads_read_one_file_in_trouble(server) -> None:
    chance = random.Random(5)
    with tensorkeep.open(at(server, attempts=50)) as file:
        server.faults.extend(
            chance.choice([Fault(cut_at=500), Fault(status=503), Fault(close=True), None, None, None])
            for _ in range(300)
        )
        results = []

        def work() -> None:
            for _ in range(5):
                results.append(np.array_equal(file["a"].load(), ONE["a"]))  # noqa: PERF401

        threads = [threading.Thread(target=work) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    assert results == [True] * 40


def test_an_interrupt_does_not_wait_for_a_silent_server(server) -> None:
    server.faults.extend([None, *[Fault(delay_s=20)] * 50])
    code = f"""
import _thread, threading, time
import tensorkeep
path = tensorkeep.remote({server.url + "x.safetensors"!r}, head_nbytes=1024, request_nbytes=8192, timeout_s=30)
begin = time.monotonic()
threading.Timer(0.5, lambda: __import__("os").kill(__import__("os").getpid(), 2)).start()
try:
    tensorkeep.load(path)
except KeyboardInterrupt:
    print(time.monotonic() - begin < 5)
"""

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)

    assert done.stdout == "True\n", done.stderr

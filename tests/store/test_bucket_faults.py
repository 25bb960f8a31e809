"""A server that fails, forgets to answer, throttles, or lists what was: errors are told, and no step is lost."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

import tensorkeep
from tensorkeep.errors import SourceMissingError, TensorkeepError, TransientError
from tests.support.remote.s3_bucket import KEYS, Bucket
from tests.support.remote.s3_proxy import Proxy
from tests.support.soak import SEED, rounds
from tests.support.store.places import KeptAt, in_bucket
from tests.support.store.run_states import state, step_of, store

QUICK: dict[str, Any] = {
    "pause_s": 0.001,
    "timeout_s": 0.5,
    "retry_config": {"max_retries": 2, "backoff": {"init_backoff": timedelta(milliseconds=1)}},
}
"""What a client is given that soon tries again, and soon gives up."""


@pytest.fixture(scope="module")
def bucket() -> Iterator[Bucket]:
    with Bucket.served() as served:
        yield served


@pytest.fixture
def at(tmp_path: Path, bucket: Bucket) -> KeptAt:
    return in_bucket(tmp_path, bucket)


class Faulty(Proxy):
    """Fails some requests, before or after they are done."""

    rng: ClassVar[random.Random]
    share: ClassVar[float] = 0.0
    faults: ClassVar[tuple[str, ...]] = ("500", "503", "429", "reset", "lost", "500 lost", "late")
    seen: ClassVar[set[str]] = set()

    def do_any(self) -> None:
        if self.rng.random() >= self.share:
            super().do_any()
            return
        fault = self.rng.choice(self.faults)
        self.seen.add(f"{self.command} {fault}")
        if "lost" in fault or fault == "late":
            self.ask()
        else:
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if fault == "late":
            time.sleep(0.7)
        if fault in {"reset", "lost", "late"}:
            self.close_connection = True
            return
        self.send_response(int(fault[:3]))
        body = b"<Error><Code>SlowDown</Code></Error>"
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(b"" if self.command == "HEAD" else body)

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = do_any


def test_a_run_gets_through_whatever_fails(at: KeptAt, bucket: Bucket, tmp_path: Path) -> None:
    Faulty.rng = random.Random(SEED)
    n_errors = 0
    with Faulty.before(bucket.url) as url:
        kept = store(tensorkeep.remote(f"s3://models/{tmp_path.name}", endpoint=url, **KEYS, **QUICK), keep_last=2)
        Faulty.share = 0.15
        for step in range(1, rounds(4, 300)):
            while True:
                try:
                    kept.save(step, state(step), {"valid_loss": step})
                    break
                except TensorkeepError:
                    n_errors += 1
                    assert n_errors < 10 * step
            Faulty.share, share = 0.0, Faulty.share
            steps = store(at.root).steps()
            assert steps[-1] == step, "the caller was told that it is saved"
            assert [step_of(store(at.root).load(each)) for each in steps] == steps
            Faulty.share = share
        Faulty.share = 0.0
        kept.save(step + 1, state(step + 1), {"valid_loss": step + 1})

    assert store(at.root).steps() == [1, step, step + 1]
    assert {fault.partition(" ")[0] for fault in Faulty.seen} >= {"GET", "PUT"}


def test_a_server_that_only_throttles_is_an_error_that_says_so(
    at: KeptAt, bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Faulty, "faults", ("503", "429"))
    store(at.root).save(1, state(1))
    before = at.names()
    Faulty.rng, Faulty.share = random.Random(SEED), 1.0
    with Faulty.before(bucket.url) as url:
        kept = store(tensorkeep.remote(f"s3://models/{tmp_path.name}", endpoint=url, attempts=2, **KEYS, **QUICK))
        for act in (lambda: kept.save(2, state(2)), kept.load, kept.latest, kept.best):
            with pytest.raises(TransientError, match=tmp_path.name):
                act()
    assert at.names() == before


class Behind(Proxy):
    """Lists what was there some writes ago."""

    n_behind: ClassVar[int] = 6
    listings: ClassVar[deque[Any]] = deque()
    prefix: ClassVar[str] = ""
    lock: ClassVar[threading.Lock] = threading.Lock()

    def ask(self) -> Any:
        if self.command == "GET" and "list-type=2" in self.path:
            with self.lock:
                return self.listings[0]
        answer = super().ask()
        if self.command != "GET":
            self.note()
        return answer

    @classmethod
    def note(cls) -> None:
        with cls.lock:
            cls.listings.append(cls.listed())
            while len(cls.listings) > cls.n_behind + 1:
                cls.listings.popleft()

    @classmethod
    def listed(cls) -> Any:
        import http.client

        connection = http.client.HTTPConnection(cls.target.removeprefix("http://"))
        connection.request("GET", f"/models?list-type=2&prefix={cls.prefix}%2F")
        answer = connection.getresponse()
        return answer.status, answer.getheaders(), answer.read()


def test_a_listing_that_lags_hides_steps_and_harms_none(at: KeptAt, bucket: Bucket, tmp_path: Path) -> None:
    with Behind.before(bucket.url) as url:
        Behind.prefix = tmp_path.name
        Behind.listings.clear()
        Behind.note()
        kept = store(tensorkeep.remote(f"s3://models/{tmp_path.name}", endpoint=url, **KEYS), keep_last=2)
        for step in range(1, 8):
            kept.save(step, state(step), {"valid_loss": step})
            if step == 7:
                assert step_of(kept.load()) >= 4

    assert {1, 6, 7} <= {*store(at.root).steps()}
    assert [step_of(store(at.root).load(step)) for step in store(at.root)] == store(at.root).steps()
    store(at.root, keep_last=2).save(8, state(8), {"valid_loss": 8})
    assert store(at.root).steps() == [1, 7, 8]
    assert {name.partition("/")[0] for name in at.names() if "/" in name} == {
        f"step-0000000{step}" for step in (1, 7, 8)
    }


def program(*lines: str) -> list[str]:
    return [sys.executable, "-c", "\n".join(["from tests.support.store.run_states import *", *lines])]


def test_the_process_ends_when_its_background_saves_are_done_or_their_errors_told(bucket: Bucket) -> None:
    ending = program(
        "from tensorkeep import CheckpointStore",
        "CheckpointStore('s3://models/ending', keep_last=2).save_async(1, state(1), {'valid_loss': 1})",
        "CheckpointStore('s3://no-such-bucket/run').save_async(1, state(1))",
    )
    ended = subprocess.run(
        ending, env=os.environ | bucket.environment, capture_output=True, text=True, timeout=60, check=True
    )

    assert "SourceMissingError: there is no such bucket" in ended.stderr
    kept = store(bucket.at("ending"))
    assert step_of(kept.load()) == 1
    failing = store(bucket.remote("s3://no-such-bucket/run"))
    first = failing.save_async(1, {"a": np.ones(3)})
    first.wait(60)
    with pytest.raises(SourceMissingError, match="no such bucket") as raised:
        failing.save_async(2, {"a": np.ones(3)})
    assert "earlier save" in raised.value.__notes__[0]


def test_two_processes_save_and_one_reads(bucket: Bucket) -> None:
    n = rounds(8, 100)
    root, environment = "s3://models/shared", os.environ | bucket.environment
    store(bucket.at("shared"), keep_last=2).save(0, state(0), {"valid_loss": 0})
    saver = (
        "import sys",
        "kept = store(sys.argv[1], keep_last=2)",
        f"for step in range(int(sys.argv[2]), {n}, 2): kept.save(step, state(step), {{'valid_loss': step}})",
    )
    savers = [subprocess.Popen([*program(*saver), root, str(first)], env=environment) for first in (1, 2)]
    reader, latest = store(bucket.at("shared")), [0]
    while any(each.poll() is None for each in savers):
        latest.append(step_of(reader.load()))
        assert step_of(reader.load("best")) == 0
        assert reader.steps()[0] == 0

    assert [each.returncode for each in savers] == [0, 0]
    for its in ([step for step in latest if step % 2 == first] for first in (0, 1)):
        assert its == sorted(its), "an older step was read after a newer one"
    steps = reader.steps()
    assert (steps[0], len(steps)) == (0, 3)
    assert [step_of(reader.load(step)) for step in steps] == steps
    store(bucket.at("shared")).save(n, state(n))
    assert {name.partition("/")[0] for name in bucket.names("shared") if "/" in name} == {
        reader.path_of(step).rpartition("/")[2] for step in reader.steps()
    }

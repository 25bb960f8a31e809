"""Steps in a bucket: stopped at any request, killed at any time, swept when the dead are surely dead."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
import warnings
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any, ClassVar

import fsspec
import moto.s3.models
import numpy as np
import pytest

import tensorkeep
from tensorkeep.errors import BusyError, SourceMissingError, TensorkeepError, TransportError
from tensorkeep.store import CheckpointStore, UnguardedStoreWarning, place_of
from tests.support.remote.s3_bucket import KEYS, Bucket
from tests.support.remote.s3_proxy import Proxy
from tests.support.soak import SEED, SOAK, rounds
from tests.support.store.places import KeptAt, in_bucket
from tests.support.store.run_states import state, step_of, store

INDEX = "model.safetensors.index.json"
DEAD: dict[str, Any] = {"attempts": 1, "retry_config": {"max_retries": 0, "retry_timeout": timedelta(seconds=5)}}
"""What a client is given whose requests fail at once."""


@pytest.fixture(scope="module")
def bucket() -> Iterator[Bucket]:
    with Bucket.served() as served:
        yield served


@pytest.fixture
def at(tmp_path: Path, bucket: Bucket) -> KeptAt:
    return in_bucket(tmp_path, bucket)


def age(prefix: str, seconds: float) -> None:
    """Let objects have come earlier."""
    for key in moto.s3.models.s3_backends["123456789012"]["aws"].buckets["models"].keys.values():
        if key.name.startswith(prefix):
            key.last_modified -= timedelta(seconds=seconds)


class Stops(Proxy):
    """Passes on some requests; the next one is done or not, and is not answered, and from there on nothing is.

    To the bucket, that is a process that was killed.
    """

    n_left: ClassVar[int] = 0
    does_the_last: ClassVar[bool] = False
    seen: ClassVar[list[tuple[str, int]]] = []
    lock: ClassVar[threading.Lock] = threading.Lock()

    def do_any(self) -> None:
        with self.lock:
            left, Stops.n_left = self.n_left, self.n_left - 1
        self.seen.append((self.command, int(self.headers.get("Content-Length", 0))))
        if left > 0:
            super().do_any()
            return
        if left == 0 and self.does_the_last:
            self.ask()
        self.close_connection = True

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = do_any


@pytest.fixture(scope="module")
def stopping(bucket: Bucket) -> Iterator[str]:
    with Stops.before(bucket.url) as url:
        yield url


def save_until(at: KeptAt, url: str, n_requests: int, step: int, content: int, *, does_the_last: bool) -> bool:
    """Save a step with a client that is cut off; say whether it got to the end."""
    path = str(at.root).removeprefix("s3://models/")
    dying = tensorkeep.remote(f"s3://models/{path}", endpoint=url, pause_s=0.001, **KEYS, **DEAD)
    Stops.n_left, Stops.does_the_last = n_requests, does_the_last
    kept = store(dying, keep_last=2)
    try:
        with warnings.catch_warnings(action="ignore"):
            kept.save(step, state(content), {"valid_loss": content})
    except TensorkeepError:
        return False
    return Stops.n_left >= 0


@pytest.mark.parametrize(
    ("saved", "content", "does_the_last"), [(4, 4, False), (4, 4, True), (3, 33, True)], ids=["cut", "lost", "again"]
)
def test_stopped_at_any_request_all_steps_are_whole(
    bucket: Bucket, stopping: str, tmp_path: Path, saved: int, content: int, does_the_last: bool
) -> None:
    first = in_bucket(tmp_path, bucket)
    for step in (1, 2, 3):
        store(first.root, keep_last=2).save(step, state(step), {"valid_loss": step})
    outcomes: Counter[tuple[int, ...]] = Counter()
    for n_requests in range(0, 1000, 1 if SOAK else 8):
        at = in_bucket(Path(f"{tmp_path.name}-{n_requests}"), bucket)
        for name in first.names():
            at.put(name, first.get(name))
        kept = store(at.root, keep_last=2)

        is_done = save_until(at, stopping, n_requests, saved, content, does_the_last=does_the_last)

        found = store(at.root)
        steps = found.steps()
        contents = [step_of(found.load(step)) for step in steps]
        outcomes[tuple(contents)] += 1
        assert (step_of(found.load()), found.best()) == (contents[-1], 1)
        kept.save(5, state(5), {"valid_loss": 5})
        assert kept.steps() == ([1, 4, 5] if 4 in steps else [1, 3, 5])
        if is_done:
            break

    possible = {(1, 2, 3), (1, 2, 3, 4), (1, 3, 4)} if saved == 4 else {(1, 2, 3), (1, 2, 33)}
    assert set(outcomes) == possible if SOAK else set(outcomes) <= possible


def test_what_a_dead_save_left_is_swept_when_it_is_a_day_old(at: KeptAt, tmp_path: Path) -> None:
    kept = store(at.root, keep_last=2)
    kept.save(1, state(1))
    left = {f"step-0000000{step}/model-0123abcd-0000{n}-of-00002.safetensors" for step in (1, 7) for n in (1, 2)}
    theirs = "step-00000007/model-00001-of-00002.safetensors"
    for name in (*left, theirs):
        at.put(name, b"half")

    age(f"{tmp_path.name}/", 23 * 3600)
    kept.save(2, state(2))
    kept.save(3, state(3))
    assert at.names() >= {*left, theirs}, "it may still be on its way"
    one = sorted(left)[-1]
    age(f"{tmp_path.name}/step", 2 * 3600)
    at.put(one, b"more")
    kept.save(4, state(4))
    assert at.names() & left == {name for name in left if name.startswith("step-00000007")}, "a file came just now"
    age(f"{tmp_path.name}/step", 25 * 3600)
    kept.save(5, state(5))
    kept.save(6, state(6))

    assert at.names() & left == set()
    assert theirs in at.names(), "no save of ours names files so"
    assert [step_of(kept.load(step)) for step in kept.steps()] == [5, 6]


def test_a_removal_that_a_dead_process_began_is_finished_an_hour_later(
    at: KeptAt, bucket: Bucket, stopping: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = store(at.root, keep_last=None)
    for step in (1, 2):
        kept.save(step, state(step))
    dying = tensorkeep.remote(f"s3://models/{tmp_path.name}", endpoint=stopping, pause_s=0.001, **KEYS, **DEAD)
    Stops.n_left, Stops.does_the_last = 2, False
    with pytest.raises(TransportError):
        CheckpointStore(dying).remove(1)

    assert kept.steps() == [2]
    assert len(at.of_step(1)) > 2
    with pytest.raises(SourceMissingError, match="no such step"):
        kept.load(1)
    for use in (tensorkeep.open, tensorkeep.load):
        with pytest.raises(SourceMissingError, match="is being removed"):
            use(kept.path_of(1))
    monkeypatch.setattr("tensorkeep.checkpoint.saving._store_destination._PATIENCE_S", 0.1)
    with pytest.raises(BusyError, match="another process is removing"):
        kept.save(1, state(1))
    age(f"{tmp_path.name}/step-00000001", 2 * 3600)
    kept.save(3, state(3))
    assert at.of_step(1) == set()
    kept.save(1, state(1))
    assert kept.steps() == [1, 2, 3]


def test_a_save_waits_for_a_removal(at: KeptAt) -> None:
    kept = store(at.root, keep_last=None)
    kept.save(1, state(1))
    kept.save(2, state(2))
    index = at.get(f"step-00000001/{INDEX}")
    at.put(f"step-00000001/{INDEX}", b'{"tensorkeep_removed":{"files":[]}}')
    timer = threading.Timer(0.5, place_of(at.root)._root.joined(f"step-00000001/{INDEX}").remove)
    timer.start()

    kept.save(1, state(1))

    assert kept.steps() == [1, 2]
    assert at.get(f"step-00000001/{INDEX}") != index


def test_what_did_not_change_is_not_sent_again(at: KeptAt, bucket: Bucket, stopping: str, tmp_path: Path) -> None:
    Stops.n_left = 10**6
    kept = store(
        tensorkeep.remote(f"s3://models/{tmp_path.name}", endpoint=stopping, **KEYS),
        keep_last=2,
        max_shard_size="200KB",
    )
    for step in (1, 2, 3):
        kept.save(step, state(step))
        n_before = len(Stops.seen)
    kept.save(4, {**state(3), "step": 4})

    n_shards = len(at.shards(4))
    sent = Stops.seen[n_before:]
    counted = Counter(method for method, _ in sent)
    assert sum(nbytes for _, nbytes in sent) < 10_000, "nothing but the index, and notes"
    assert counted["PUT"] == n_shards + 2, "copies, the index, and the note of a removal"
    assert sum(counted.values()) <= 5 * n_shards + 20
    assert kept.load(4)["step"] == 4
    assert [tensorkeep.verify(kept.path_of(step)).is_whole for step in kept.steps()] == [True, True]


def test_a_file_system_without_conditional_writes_says_so_once() -> None:
    try:
        kept = CheckpointStore("memory://unguarded/run")
        with pytest.warns(UnguardedStoreWarning, match="only one process at a time") as caught:
            kept.save(1, {"a": np.ones(3)})
        kept.save(2, {"a": np.ones(3)})

        assert caught[0].filename == __file__
        assert kept.steps() == [1, 2]
    finally:
        fsspec.filesystem("memory").store.clear()


class Unconditional(Proxy):
    """Writes whatever the condition, as some servers do that speak S3."""

    def ask(self) -> Any:
        for name in ("If-Match", "If-None-Match"):
            del self.headers[name]
        return super().ask()


def test_a_server_that_ignores_conditions_is_told_from_others(at: KeptAt, bucket: Bucket, tmp_path: Path) -> None:
    kept = store(at.root)
    with warnings.catch_warnings(action="error"):
        for step in (1, 2):
            kept.save(step, {"a": np.ones(3)})
    with Unconditional.before(bucket.url) as url:
        root = tensorkeep.remote(f"s3://models/{tmp_path.name}", endpoint=url, **KEYS)
        with pytest.warns(UnguardedStoreWarning):
            store(root).save(3, {"a": np.ones(3)})

    assert kept.steps() == [1, 2, 3]


@pytest.mark.soak
def test_killed_at_any_time_all_steps_are_whole(bucket: Bucket) -> None:
    program = (
        "import sys, warnings\n"
        "from tests.support.remote.s3_bucket import KEYS\n"
        "from tests.support.store.run_states import state, store\n"
        "import tensorkeep\n"
        "root = tensorkeep.remote('s3://models/killed', endpoint=sys.argv[1], **KEYS)\n"
        "kept = store(root, keep_last=2)\n"
        "print(flush=True)\n"
        "for step in range(int(sys.argv[2]), 10_000):\n"
        "    kept.save(step, state(step), {'valid_loss': step})\n"
        "    print(flush=True)"
    )
    rng = np.random.default_rng(SEED)
    kept = store(bucket.at("killed"), keep_last=2)
    kept.save(0, state(0), {"valid_loss": 0})
    last = 0
    for number in range(rounds(2, 200)):
        arguments = [sys.executable, "-c", program, bucket.url, str(last + 1)]
        with subprocess.Popen(arguments, stdout=subprocess.PIPE) as saver:
            assert saver.stdout is not None
            for _ in range(1 + number % 2):
                saver.stdout.readline()
            time.sleep(rng.uniform(0.0, 0.6))
            saver.send_signal(signal.SIGKILL)
        steps = store(bucket.at("killed")).steps()
        assert steps[0] == 0, "the best"
        assert steps[-1] >= last
        assert [step_of(kept.load(step)) for step in steps] == steps
        last = steps[-1]
    assert last
    kept.save(last + 1, state(last + 1))
    assert len(kept.steps()) == 3

"""A feed in a bucket: followed, stopped at any request, and published by two processes at once."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any, ClassVar

import pytest

import tensorkeep
from tensorkeep.errors import RefusedError, SourceChangedError, TensorkeepError, UnsupportedError
from tensorkeep.patches import Publisher
from tests.support.patches.models import save
from tests.support.remote.s3_bucket import KEYS, Bucket
from tests.support.remote.s3_proxy import Proxy
from tests.support.soak import SOAK

DEAD: dict[str, Any] = {"attempts": 1, "retry_config": {"max_retries": 0, "retry_timeout": timedelta(seconds=5)}}
"""What a client is given whose requests fail at once."""


@pytest.fixture(scope="module")
def bucket() -> Iterator[Bucket]:
    with Bucket.served() as served:
        yield served


@pytest.fixture(scope="module")
def steps(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("steps")
    return [save(folder / str(number), number) for number in range(1, 6)]


class Stops(Proxy):
    """Passes on some requests; from there on, none is answered, as if the client had been killed."""

    n_left: ClassVar[int] = 0
    lock: ClassVar[threading.Lock] = threading.Lock()

    def do_any(self) -> None:
        with self.lock:
            left, Stops.n_left = self.n_left, self.n_left - 1
        if left > 0:
            super().do_any()
            return
        if left == 0:
            self.ask()  # it is done, and the answer is lost
        self.close_connection = True

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = do_any


def equal(a: Any, b: Any) -> bool:
    with tensorkeep.open(a) as left, tensorkeep.open(b) as right:
        return tensorkeep.diff(left, right).is_equal and left.metadata == right.metadata


def followed(feed: Any, model: Path, step: int | None = None) -> list[tuple[int, bool]]:
    """Bring a model to the last step of a feed, and return what came."""
    given = []
    with tensorkeep.follow(feed, step=step, timeout_s=0) as updates:
        for update in updates:
            update.apply_to(model)
            given.append((update.step, update.is_anchor))
    return given


def test_a_worker_follows_a_run_in_a_bucket(steps: list[Path], bucket: Bucket, tmp_path: Path) -> None:
    feed = bucket.at(tmp_path.name)
    publisher = Publisher(feed, anchor_every=3, keep_anchors=1)
    model = tmp_path / "model"
    seen: list[tuple[int, bool]] = []
    for number, path in enumerate(steps):
        publisher.publish(number, path, previous=steps[number - 1] if number % 2 else None)
        seen += followed(feed, model, seen[-1][0] if seen else None)
        assert equal(model, path)

    assert seen == [(0, True), (1, False), (2, False), (3, True), (4, False)]  # 2 is gone when 3 comes
    assert Publisher(feed).steps == [3, 4]
    names = {name.partition("/")[0] for name in bucket.names(tmp_path.name)}
    assert sorted(name.partition("-")[0] for name in names) == ["4", "anchor", "feed.json"]
    with pytest.raises(RefusedError, match="not step 4, which was published last"):
        publisher.publish(5, steps[0], previous=steps[1])


def test_stopped_at_any_request_followers_get_whole_steps(steps: list[Path], bucket: Bucket, tmp_path: Path) -> None:
    outcomes = set()
    with Stops.before(bucket.url) as stopping:
        for n_requests in range(0, 1000, 1 if SOAK else 6):
            name = f"{tmp_path.name}-{n_requests}"
            feed = bucket.at(name)
            for number in range(2):
                Publisher(feed, anchor_every=2, keep_anchors=1).publish(number, steps[number])
            dying = tensorkeep.remote(f"s3://models/{name}", endpoint=stopping, pause_s=0.001, **KEYS, **DEAD)
            Stops.n_left = n_requests
            with suppress(TensorkeepError):
                Publisher(dying, anchor_every=2, keep_anchors=1).publish(2, steps[2])
            is_done = Stops.n_left >= 0

            model = tmp_path / str(n_requests)
            last = followed(feed, model)[-1][0]
            outcomes.add(last)
            assert equal(model, steps[last])
            Publisher(feed, anchor_every=2, keep_anchors=1).publish(3, steps[3])
            assert followed(feed, model, last)[-1][0] == 3
            assert equal(model, steps[3])
            kept = {each.partition("/")[0] for each in bucket.names(name)}
            assert len(kept) == (3 if last == 2 else 2), "what the stopped one left is still there"
            if is_done:
                break
    assert outcomes == {1, 2}


@pytest.mark.parametrize("step", [1, 2])
def test_one_of_two_publishers_is_refused(
    steps: list[Path], bucket: Bucket, tmp_path: Path, step: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    feed = bucket.at(tmp_path.name)
    Publisher(feed).publish(0, steps[0])
    make = tensorkeep.patches.make

    def while_another_publishes(*args: Any, **options: Any) -> Any:
        monkeypatch.undo()
        Publisher(feed).publish(step, steps[2])
        return make(*args, **options)

    monkeypatch.setattr("tensorkeep.patches.feed._publish.make", while_another_publishes)
    with pytest.raises(SourceChangedError, match="another process publishes in this feed"):
        Publisher(feed).publish(1, steps[1])

    assert followed(feed, tmp_path / "model") == [(0, True), (step, False)]
    assert equal(tmp_path / "model", steps[2])
    assert len({each.partition("/")[0] for each in bucket.names(tmp_path.name)}) == 3


def test_servers_that_take_nothing_are_refused() -> None:
    with pytest.raises(UnsupportedError):
        Publisher("https://example.com/feed")

"""Runs that are published and followed: in order, checked, and from an anchor where too much was missed."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import pytest
import torch

import tensorkeep
import tensorkeep.torch
from tensorkeep.errors import (
    BusyError,
    FormatError,
    IntegrityError,
    RefusedError,
    TensorkeepError,
    TransientError,
    UnsupportedError,
)
from tensorkeep.patches import NoFeedWarning, Publisher, Update, apply
from tensorkeep.server import Server
from tests.support.patches.models import save


@pytest.fixture(scope="module")
def steps(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("steps")
    return [save(folder / str(number), number) for number in range(1, 8)]


@pytest.fixture
def feed(tmp_path: Path) -> Path:
    return tmp_path / "www" / "feed"


@pytest.fixture
def url(feed: Path) -> Iterator[str]:
    feed.parent.mkdir()
    with Server(feed.parent, port=0) as server:
        yield f"{server.url.rstrip('/')}/feed"


def given(updates: list[Update]) -> list[tuple[int, bool]]:
    return [(update.step, update.is_anchor) for update in updates]


def equal(a: Path, b: Path) -> bool:
    with tensorkeep.open(a) as left, tensorkeep.open(b) as right:
        return tensorkeep.diff(left, right).is_equal and left.metadata == right.metadata


def test_a_worker_follows_a_run_over_http(steps: list[Path], feed: Path, url: str, tmp_path: Path) -> None:
    publisher = Publisher(feed, anchor_every=3, durable=False)
    model = tmp_path / "model"
    seen = []
    with tensorkeep.follow(url, timeout_s=0) as updates:
        assert updates.poll() is None
        for number, path in enumerate(steps[:5]):
            publisher.publish(number * 10, path)
            for update in updates:
                update.apply_to(model)
                seen.append(update)
            assert equal(model, path)

    assert given(seen) == [(0, True), (10, False), (20, False), (30, False), (40, False)]
    assert sorted(path.name for path in feed.iterdir()) == [
        *("10.patch.safetensors", "20.patch.safetensors", "30.patch.safetensors", "40.patch.safetensors"),
        *("anchor-0", "anchor-30", "feed.json"),
    ]


def test_who_missed_too_much_gets_an_anchor_and_others_only_patches(steps: list[Path], feed: Path, url: str) -> None:
    publisher = Publisher(feed, anchor_every=2, keep_anchors=1, durable=False)
    for number, path in enumerate(steps):
        publisher.publish(number, path)

    with (
        tensorkeep.follow(url, timeout_s=0) as new,
        tensorkeep.follow(feed, step=1, timeout_s=0) as late,
        tensorkeep.follow(url, step=6, timeout_s=0) as abreast,
    ):
        assert (given([*new]), given([*late]), given([*abreast])) == ([(6, True)], [(6, True)], [])
    Publisher(feed, anchor_every=9, durable=False).publish(7, steps[0])
    with tensorkeep.follow(url, step=6, timeout_s=0) as abreast:
        assert given([*abreast]) == [(7, False)]
    assert publisher.steps == [6, 7]
    with pytest.raises(RefusedError, match="not after the last one"):
        publisher.publish(7, steps[1])


@pytest.mark.parametrize("step", [-1, 1.5, True, 2**70, "3", None])
def test_what_is_not_the_number_of_a_step_is_not_published(steps: list[Path], tmp_path: Path, step: Any) -> None:
    publisher = Publisher(tmp_path / "feed", durable=False)
    with pytest.raises(UnsupportedError, match="not the number of a step"):
        publisher.publish(step, steps[0])

    assert publisher.steps == []
    publisher.publish(np.int64(3), steps[0])  # type: ignore[arg-type] # loops count with NumPy too
    assert publisher.steps == [3]


def test_who_waits_where_no_feed_is_gets_a_warning(tmp_path: Path) -> None:
    with (
        tensorkeep.follow(tmp_path / "misspelt", poll_s=0, timeout_s=0.05) as updates,
        pytest.warns(NoFeedWarning, match="misspelt") as warned,
    ):
        assert list(updates) == []
    assert len(warned) == 1


def test_who_follows_a_server_that_restarts_waits_for_it(steps: list[Path], feed: Path, tmp_path: Path) -> None:
    publisher = Publisher(feed, durable=False)
    publisher.publish(1, steps[0])
    with Server(feed.parent, port=0) as server:
        url, port = f"{server.url.rstrip('/')}/feed", urlsplit(server.url).port or 0
        updates = tensorkeep.follow(url, poll_s=0.02, timeout_s=0.1)
        next(updates).apply_to(tmp_path / "model")
    publisher.publish(2, steps[1])
    with (
        pytest.warns(NoFeedWarning, match=r"could not be read.*waiting until the feed can be read") as warned,
        pytest.raises(TransientError, match="could not be read"),
    ):
        next(updates)
    assert len(warned) == 1
    updates.close()

    with ExitStack() as restarted, tensorkeep.follow(url, step=1, poll_s=0.02, timeout_s=30) as updates:
        later = threading.Timer(4, lambda: restarted.enter_context(Server(feed.parent, port=port)))
        later.start()
        with pytest.warns(NoFeedWarning, match="could not be read"):
            next(updates).apply_to(tmp_path / "model")
        later.join()
    assert equal(tmp_path / "model", steps[1])


def test_each_time_that_the_feed_is_not_there_has_a_warning(steps: list[Path], feed: Path, tmp_path: Path) -> None:
    Publisher(feed.parent, durable=False).publish(1, steps[0])
    away = tmp_path / "away"
    with tensorkeep.follow(feed.parent, poll_s=0, timeout_s=0) as updates:
        feed.parent.rename(away)
        with pytest.warns(NoFeedWarning):
            assert list(updates) == []
        away.rename(feed.parent)
        assert next(updates).is_anchor
        feed.parent.rename(away)
        with pytest.warns(NoFeedWarning):
            assert list(updates) == []


@pytest.mark.parametrize("times", [{"poll_s": -1}, {"timeout_s": -1}, {"poll_s": float("nan")}])
def test_times_that_cannot_be_waited_are_refused(times: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="must be at least 0 seconds"):
        tensorkeep.follow("feed", **times)  # type: ignore[arg-type] # these are no step


def test_a_follower_waits_for_the_next_step(steps: list[Path], feed: Path) -> None:
    publisher = Publisher(feed.parent, durable=False)
    publisher.publish(1, steps[0])
    later = threading.Timer(0.3, publisher.publish, (2, steps[1]))
    with tensorkeep.follow(feed.parent, poll_s=0.02, timeout_s=20) as updates:
        assert next(updates).is_anchor
        later.start()
        assert given([next(updates)]) == [(2, False)]
    later.join()


@pytest.mark.parametrize("what", ["patch", "digest", "nbytes", "name", "order", "version", "text"])
def test_what_is_damaged_or_forged_is_not_given(steps: list[Path], feed: Path, url: str, what: str) -> None:
    publisher = Publisher(feed, durable=False)
    publisher.publish(1, steps[0])
    publisher.publish(2, steps[1])
    apply(steps[0], f"{url}/2.patch.safetensors", output=feed / "out")
    assert equal(feed / "out", steps[1])
    index: dict[str, Any] = json.loads((feed / "feed.json").read_text())
    last = index["steps"][1]
    changes: dict[str, dict[str, Any]] = {
        "digest": {"digest": "0" * 64},
        "nbytes": {"nbytes": 7},
        "name": {"patch": "../feed/2.patch.safetensors"},
        "order": {"step": 0},
    }
    last |= changes.get(what, {})
    if what == "version":
        index["feed"] = 2
    (feed / "feed.json").write_text("[" if what == "text" else json.dumps(index))
    if what == "patch":
        data = np.fromfile(feed / "2.patch.safetensors", np.uint8)
        data[-5] ^= 1
        data.tofile(feed / "2.patch.safetensors")

    error: type[TensorkeepError] = IntegrityError if what in {"patch", "digest", "nbytes"} else FormatError
    with tensorkeep.follow(url, step=1) as updates, pytest.raises(UnsupportedError if what == "version" else error):
        updates.poll()


@pytest.mark.parametrize("remote", [False, True])
def test_a_damaged_anchor_is_not_applied(
    steps: list[Path], feed: Path, url: str, tmp_path: Path, *, remote: bool
) -> None:
    Publisher(feed, durable=False).publish(1, steps[0])
    served = save(tmp_path / "served", 2)
    before = {path.name: path.read_bytes() for path in served.iterdir()}
    shard = next((feed / "anchor-1").glob("*.safetensors"))
    data = bytearray(shard.read_bytes())
    data[-5] ^= 1
    shard.write_bytes(data)

    with tensorkeep.follow(url if remote else feed, timeout_s=0) as updates:
        update = next(updates)
        with pytest.raises(IntegrityError):
            update.apply_to(served)

    assert {path.name: path.read_bytes() for path in served.iterdir()} == before


def test_a_damaged_anchor_is_not_loaded(tmp_path: Path) -> None:
    model = torch.nn.Linear(8, 8)
    tensorkeep.save({name: tensor + 1 for name, tensor in model.state_dict().items()}, tmp_path / "new.safetensors")
    Publisher(tmp_path / "feed", durable=False).publish(1, tmp_path / "new.safetensors")
    shard = next((tmp_path / "feed" / "anchor-1").glob("*.safetensors"))
    data = bytearray(shard.read_bytes())
    data[-5] ^= 1
    shard.write_bytes(data)

    with (
        tensorkeep.follow(tmp_path / "feed", timeout_s=0) as updates,
        tensorkeep.open(next(updates).path, verify=True) as anchor,
        pytest.raises(IntegrityError),
    ):
        tensorkeep.torch.load_into(model, anchor)


def test_what_the_feed_did_not_publish_stays(steps: list[Path], tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    save(folder / "anchor-best", 1)
    tensorkeep.patches.make(steps[0], steps[1], folder / "mine.patch.safetensors")
    (folder / "anchor-30").mkdir()
    publisher = Publisher(folder, anchor_every=1, keep_anchors=1, durable=False)
    for step in (10, 20):
        publisher.publish(step, steps[0])

    with pytest.raises(RefusedError, match="did not publish"):
        publisher.publish(30, steps[1])

    assert sorted(path.name for path in folder.iterdir()) == [
        "anchor-20",
        "anchor-30",
        "anchor-best",
        "feed.json",
        "mine.patch.safetensors",
    ]
    assert publisher.steps == [20]


def test_a_step_whose_publication_failed_is_published_again(steps: list[Path], feed: Path, tmp_path: Path) -> None:
    feed.parent.mkdir()
    publisher = Publisher(feed, anchor_every=1, durable=False)
    damaged = save(tmp_path / "damaged", 2)
    for shard in damaged.glob("*.safetensors"):
        data = bytearray(shard.read_bytes())
        data[-1] ^= 1
        shard.write_bytes(data)
    publisher.publish(10, steps[0])
    with pytest.raises(IntegrityError):
        publisher.publish(20, damaged)
    (feed / "anchor-20").mkdir(exist_ok=True)  # what a killed one may leave

    publisher.publish(20, steps[1])

    assert publisher.steps == [10, 20]
    assert equal(feed / "anchor-20", steps[1])


def test_a_patch_may_be_moved_away(steps: list[Path], feed: Path, tmp_path: Path) -> None:
    publisher = Publisher(feed.parent, durable=False)
    with tensorkeep.follow(feed.parent, timeout_s=0) as follower:
        for number in range(3):
            publisher.publish(number, steps[number])
            (update,) = follower
            if not update.is_anchor:
                Path(update.path).rename(tmp_path / f"{number}.safetensors")

    assert [(tmp_path / f"{number}.safetensors").exists() for number in range(3)] == [False, True, True]


def test_two_publishers_take_turns(steps: list[Path], feed: Path) -> None:
    publisher, other = (Publisher(feed.parent, durable=False) for _ in range(2))
    publisher.publish(1, steps[0])
    busy: list[BusyError] = []

    class Meanwhile(os.PathLike[str]):
        """A path that is asked for while the step is published."""

        def __fspath__(self) -> str:
            with pytest.raises(BusyError, match="another process is publishing in this feed") as caught:
                other.publish(2, steps[2])
            busy.append(caught.value)
            return str(steps[1])

    publisher.publish(2, Meanwhile())
    with pytest.raises(RefusedError, match="not after the last one"):
        other.publish(2, steps[2])
    other.publish(3, steps[2])

    assert len(busy) == 1
    with tensorkeep.follow(feed.parent, timeout_s=0) as follower:
        assert given([*follower]) == [(1, True), (2, False), (3, False)]
    assert [path.name for path in feed.parent.iterdir() if path.name.startswith(".")] == []


def test_an_index_that_went_back_gives_nothing(steps: list[Path], feed: Path) -> None:
    feed.parent.mkdir()
    publisher = Publisher(feed, anchor_every=2, durable=False)
    publisher.publish(10, steps[0])
    earlier = (feed / "feed.json").read_bytes()
    publisher.publish(20, steps[1])
    with tensorkeep.follow(feed, timeout_s=0) as updates:
        assert [update.step for update in updates][-1] == 20
        (feed / "feed.json").write_bytes(earlier)
        assert updates.poll() is None

"""Long work: progress, the end of it when nobody listens, and what is remembered."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np
import pytest

import tensorkeep
from tensorkeep.viewing import Viewer
from tensorkeep.viewing._cache import Cache
from tensorkeep.viewing._work import Outbox, StoppedError, Work
from tests.support.viewing.client import Client


def until(is_done: Callable[[], bool]) -> None:
    end = time.monotonic() + 20
    while not is_done():
        assert time.monotonic() < end
        time.sleep(0.01)


@pytest.fixture
def viewer(tmp_path: Path):
    tensorkeep.save({"w": np.ones(1000)}, tmp_path / "a.safetensors")
    with Viewer(tmp_path / "a.safetensors") as viewer:
        yield viewer


class Slow:
    """A work of many small steps, which says when it ends and why."""

    def __init__(self) -> None:
        self.n_steps = 0
        self.ending: type[BaseException] | None = None

    def __call__(self, outbox: Outbox) -> None:
        try:
            while True:
                self.n_steps += 1
                outbox.progress(self.n_steps, 10**6)
                time.sleep(0.001)
        except BaseException as error:
            self.ending = type(error)
            raise


@pytest.fixture
def slow(viewer: Viewer, monkeypatch: pytest.MonkeyPatch) -> list[Slow]:
    """Works that begin with each request for `statistics`."""
    works: list[Slow] = []

    def begin(query, shelf) -> Work:
        works.append(Slow())
        return Work(works[-1])

    monkeypatch.setitem(tensorkeep.viewing._routes.ROUTES, "statistics", begin)
    return works


def asked(viewer: Viewer) -> socket.socket:
    """Ask for a stream, and read its first progress."""
    parts = urlsplit(viewer.url)
    connection = socket.create_connection((parts.hostname, parts.port), timeout=10)
    connection.sendall(f"GET {parts.path}api/statistics HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    return connection


def test_work_tells_its_progress_and_ends_when_the_browser_leaves(viewer: Viewer, slow: list[Slow]) -> None:
    connection = asked(viewer)
    received = b""
    while received.count(b'{"progress":') < 3:
        received += connection.recv(1000)
    assert slow[0].ending is None

    connection.close()

    until(lambda: slow[0].ending is not None)
    assert slow[0].ending is StoppedError
    assert Client(viewer).get("about")["sides"]


def test_more_work_waits_and_may_be_given_up_while_it_waits(viewer: Viewer, slow: list[Slow]) -> None:
    first, second, third = asked(viewer), asked(viewer), asked(viewer)
    received = b""
    until(lambda: len(slow) == 3)
    while b"waiting" not in received:
        received += third.recv(1000)
    assert sorted(work.n_steps > 0 for work in slow) == [False, True, True]

    third.close()
    first.close()
    second.close()

    until(lambda: sum(work.ending is StoppedError for work in slow) == 2)
    until(lambda: not viewer._replies._streaming._outboxes)
    assert sum(not work.n_steps for work in slow) == 1


def test_too_many_streams_are_refused(viewer: Viewer, slow: list[Slow]) -> None:
    connections = [asked(viewer) for _ in range(16)]
    until(lambda: len(slow) == 16)

    until(lambda: Client(viewer).raw("statistics").status == 503)

    for connection in connections:
        connection.close()
    until(lambda: not viewer._replies._streaming._outboxes)


def test_a_viewer_that_ends_ends_its_work(viewer: Viewer, slow: list[Slow]) -> None:
    connection = asked(viewer)
    until(lambda: bool(slow) and slow[0].n_steps > 0)

    viewer.close()

    until(lambda: slow[0].ending is StoppedError)
    connection.close()


def test_an_unforeseen_error_says_nothing_of_this_machine(viewer: Viewer, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("/home/someone/secret")

    for name in ("tree", "statistics"):
        monkeypatch.setitem(tensorkeep.viewing._routes.ROUTES, name, fail)
    monkeypatch.setitem(tensorkeep.viewing._routes.ROUTES, "scan", lambda *_: Work(fail))

    client = Client(viewer)
    assert client.raw("tree").status == 500
    for answer in (client.raw("tree"), client.raw("scan")):
        assert b"someone" not in answer.data
        assert json.loads(answer.data.splitlines()[-1])["error"]["kind"] == "Error"


def test_a_result_is_remembered_by_digest(viewer: Viewer, tmp_path: Path) -> None:
    client = Client(viewer)
    first = client.lines("statistics", t=0)
    tmp_path.joinpath("a.safetensors").write_bytes(b"")  # cannot be read any more

    assert client.lines("statistics", t=0) == [first[-1]]


def test_the_memory_of_results_is_bounded() -> None:
    cache = Cache(max_nbytes=100)
    for place in range(50):
        cache.put(place, b"x" * 10)
        cache.get(0)

    assert cache.get(0) is not None
    assert [cache.get(place) is not None for place in range(1, 50)] == [False] * 40 + [True] * 9
    cache.put("large", b"x" * 200)
    assert cache.get("large") is None


def test_rows_wait_for_a_reader() -> None:
    outbox = Outbox()
    for row in range(2000):
        outbox.add(row)
    assert outbox.take() == [{"rows": list(range(2000))}]
    assert outbox.take() == []
    outbox.stop()
    with pytest.raises(StoppedError):
        outbox.add(1)

"""`tensorkeep fetch`."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tensorkeep


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    root = tmp_path_factory.mktemp("served")
    tensors = {f"w{i}": np.arange(5000) + i for i in range(3)}
    tensorkeep.save_checkpoint(tensors, root / "model", max_shard_size="50KB")
    (root / "model" / "config.json").write_text("{}")
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(root)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()


def test_a_checkpoint(run: Any, site: str, tmp_path: Path) -> None:
    first = run("fetch", site + "model/", str(tmp_path / "copy"))
    second = run("fetch", site + "model/", str(tmp_path / "copy"))

    assert (first.returncode, first.stderr) == (0, "")
    assert first.stdout.startswith(f"fetched {tmp_path}/copy: 122 kB in ")
    assert first.stdout.endswith("B/s)\n")
    assert second.stdout.endswith(": nothing new, 122 kB already present\n")
    assert tensorkeep.verify(tmp_path / "copy").is_whole
    assert (tmp_path / "copy" / "config.json").exists()


def test_for_programs(run: Any, site: str, tmp_path: Path) -> None:
    done = run("fetch", site + "model/", str(tmp_path), "--no-companions", "--no-durable", "--json")

    found = json.loads(done.stdout)
    assert found["path"] == str(tmp_path)
    assert found["nbytes"] == found["fetched_nbytes"] == sum(path.stat().st_size for path in tmp_path.iterdir())
    assert not (tmp_path / "config.json").exists()


@pytest.mark.parametrize("url", ["nothing/", "model/nothing.safetensors", "model"])
def test_errors_are_one_line(run: Any, site: str, tmp_path: Path, url: str) -> None:
    done = run("fetch", site + url if url != "model" else "model", str(tmp_path / "copy"))

    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("error: ")
    assert done.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == []

"""A served directory, with everything in it that should and should not be served."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import tensorkeep
from tensorkeep.server import Server
from tests.support.server.weights import WEIGHTS


@pytest.fixture(scope="session")
def outside(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What must never be served."""
    folder = tmp_path_factory.mktemp("outside")
    folder.joinpath("secret.txt").write_text("SECRET")
    return folder


@pytest.fixture(scope="session")
def served(tmp_path_factory: pytest.TempPathFactory, outside: Path) -> Path:
    """The directory."""
    root = tmp_path_factory.mktemp("around") / "www"
    root.mkdir()
    root.parent.joinpath("secret.txt").write_text("SECRET")
    root.joinpath("bytes").write_bytes(bytes(range(256)) * 1000)
    root.joinpath("empty").touch()
    root.joinpath("config.json").write_text('{"a": 1}')
    root.joinpath("page.html").write_text("<script>alert(1)</script>")
    root.joinpath(".hidden").write_text("SECRET")
    root.joinpath(".git").mkdir()
    root.joinpath(".git", "config").write_text("SECRET")
    root.joinpath("a b").mkdir()
    root.joinpath("a b", "50% é <&>.txt").write_text("odd")
    tensorkeep.save(WEIGHTS, root / "weights.safetensors")
    tensorkeep.save_checkpoint(WEIGHTS, root / "sharded", max_shard_size="200KB")
    root.joinpath("single").mkdir()
    tensorkeep.save(WEIGHTS, root / "single" / "what-ever.safetensors")
    links = root / "links"
    links.mkdir()
    links.joinpath("inside").symlink_to("../bytes")
    links.joinpath("folder").symlink_to(root / "sharded")
    links.joinpath("up").symlink_to("..")
    links.joinpath("out").symlink_to(outside / "secret.txt")
    links.joinpath("out-folder").symlink_to(outside)
    links.joinpath("relative-out").symlink_to("../../secret.txt")
    links.joinpath("to-hidden").symlink_to("../.hidden")
    links.joinpath("loop").symlink_to("loop")
    links.joinpath("nowhere").symlink_to("missing")
    os.mkfifo(root / "pipe")
    return root


@pytest.fixture(scope="session")
def server(served: Path):
    with Server(served, port=0) as running:
        yield running

"""The table of kinds: its rows agree with the kinds, and a kind is imported only for what may be of it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import fsspec
import numpy as np
import pytest

import tensorkeep
from tensorkeep.errors import SourceMissingError
from tensorkeep.kinds import registry
from tensorkeep.kinds.base import LazyKind
from tests.support.remote.fault_server import FaultServer

ROWS = [kind for kind in registry.KINDS if isinstance(kind, LazyKind)]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.defined)
def test_a_row_says_what_its_kind_says(row: LazyKind) -> None:
    kind = row.imported()

    assert set(kind.suffixes) <= set(row.suffixes)
    assert row.suffixes == tuple(suffix.lower() for suffix in row.suffixes)


def test_all_rows_give_known_suffixes() -> None:
    assert {".safetensors", ".npz", ".bin", ".pt"} <= set(registry.known_suffixes())


def test_a_safetensors_file_imports_no_other_format(tmp_path: Path) -> None:
    tensorkeep.save({"w": np.ones(3)}, tmp_path / "model.safetensors")
    code = "import sys, tensorkeep; tensorkeep.load(sys.argv[1]); print(*sys.modules)"

    for path in (tmp_path, tmp_path / "model.safetensors"):
        done = subprocess.run([sys.executable, "-c", code, path], capture_output=True, text=True, check=True)

        imported = {name for name in done.stdout.split() if name.startswith("tensorkeep.kinds.")}
        kinds = {row.defined.partition(":")[0] for row in ROWS}
        assert "tensorkeep.kinds.safetensors" in imported
        assert not imported & kinds


@pytest.mark.parametrize(
    ("name", "n_requests"), [("a.safetensors", 1), ("a.gguf", 1), ("a.bin", 1), ("a.ckpt", 2), ("a", 7), ("a/", 7)]
)
def test_what_is_not_on_a_server_is_asked_for_only_under_names_that_it_may_have(name: str, n_requests: int) -> None:
    """What looks like a file is asked for once; a directory, under the names that each kind begins with."""
    with FaultServer({}) as server:
        with pytest.raises(SourceMissingError):
            tensorkeep.open(server.url + name)
        assert len(server.requests) == n_requests


@pytest.mark.parametrize(("name", "n_requests"), [("a/", 3), ("a", 4)])
def test_what_a_store_does_not_have_is_listed_once(
    name: str, n_requests: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The usual two names, the listing, and what the names of TensorFlow's files may begin with."""
    files = type(fsspec.filesystem("memory"))
    asked: list[str] = []
    for method in ("info", "ls"):
        real = getattr(files, method)
        monkeypatch.setattr(
            files,
            method,
            lambda self, path, *rest, real=real, **more: asked.append(path) or real(self, path, *rest, **more),
        )
    with pytest.raises(SourceMissingError):
        tensorkeep.open(f"memory://nowhere/{name}")
    assert len(asked) == n_requests

"""Directories of a server of our own, looked through for code in pickles."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest
import torch

import tensorkeep
from tensorkeep.errors import SourceMissingError
from tensorkeep.scanner import scan
from tensorkeep.server import Served, Server


class Payload:
    def __reduce__(self) -> tuple[object, ...]:
        return print, ("hello",)


def test_all_files_of_a_directory_and_those_below(tmp_path: Path) -> None:
    (tmp_path / "a.bak" / "deep").mkdir(parents=True)
    (tmp_path / "empty").mkdir()
    tensorkeep.save({"a": np.ones(3)}, tmp_path / "model.safetensors")
    for place in ("a.bak/deep/evil.pt", "evil"):
        (tmp_path / place).write_bytes(pickle.dumps(Payload()))

    with Server(tmp_path, port=0) as server:
        for url in (server.url, server.url + "a.bak/"):
            report = scan(url)
            names = {file.path.removeprefix(server.url) for file in report.files}
            assert names == (
                {"a.bak/deep/evil.pt", "evil", "model.safetensors"} if url == server.url else {"a.bak/deep/evil.pt"}
            )
            assert report.n_skipped == 0
        with pytest.raises(SourceMissingError):
            scan(server.url + "nothing/")
        with pytest.raises(SourceMissingError, match="slash"):
            tensorkeep.open(server.url + "a.bak")


def test_the_ends_of_members_are_read_together(tmp_path: Path) -> None:
    state = {str(number): torch.ones(50_000 if number % 10 else 9) for number in range(40)}
    torch.save(state, tmp_path / "clean.pt")
    state["evil"] = torch.frombuffer(bytearray(pickle.dumps(Payload())), dtype=torch.uint8)
    torch.save(state, tmp_path / "evil.pt")
    served: list[Served] = []

    with Server(tmp_path, port=0, on_served=served.append) as server:
        assert scan(server.url + "clean.pt").findings == ()
        (finding,) = scan(server.url + "evil.pt").findings

    assert finding.name == "builtins.print"
    assert len(served) <= 10

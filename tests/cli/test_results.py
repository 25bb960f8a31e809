"""Where a result goes: after `-o` or as the last argument, in every command that makes one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tensorkeep
from tensorkeep.cli import main

FORMS = {
    "reshard": ["reshard", "a.safetensors"],
    "convert": ["convert", "a.safetensors"],
    "join": ["join", "a.safetensors", "b.safetensors"],
    "fetch": ["fetch", "b.safetensors"],
    "transform": ["transform", "sparsify", "a.safetensors", "--zeros", "0.5", "--select", "a"],
    "slerp": ["merge", "slerp", "a.safetensors", "a.safetensors", "--t", "0.5"],
}


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    tensorkeep.save({"a": np.ones((4, 4), np.float32), "c": np.ones((4, 4), np.float32)}, "a.safetensors")
    tensorkeep.save({"b": np.ones((4, 4), np.float32)}, "b.safetensors")


@pytest.mark.parametrize("words", FORMS.values(), ids=FORMS)
def test_either_form(words: list[str]) -> None:
    if words[0] == "fetch":
        words = ["fetch", Path("b.safetensors").absolute().as_uri()]
    n_words = 2 if words[0] in {"transform", "merge"} else 1
    assert main([*words, "first"]) == 0
    assert main([*words[:n_words], "-o", "second", *words[n_words:]]) == 0
    assert tensorkeep.diff("first", "second").is_equal


def test_export() -> None:
    assert main(["export", "-o", "x.npz", "a.safetensors"]) == 0
    assert np.load("x.npz")["a"].shape == (4, 4)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["reshard", "a.safetensors", "x", "-o", "y"], "unexpected extra argument"),
        (["reshard", "a.safetensors"], "Missing argument 'DIRECTORY'"),
        (["reshard", "-o", "y"], "Missing argument 'PATH'"),
        (["convert"], "Missing argument 'SOURCE...'"),
        (["convert", "a.safetensors"], "Missing argument 'DESTINATION'"),
        (["convert", "-o", "y"], "Missing argument 'SOURCE...'"),
        (["join", "a.safetensors"], "Missing argument 'DIRECTORY'"),
        (["transform", "sparsify", "a.safetensors", "--zeros", "0.5"], "Missing option '--output'"),
        (["transform", "sparsify", "a.safetensors", "x", "y"], "Missing option '--output'"),
        (["transform", "sparsify", "a.safetensors", "x", "-o", "y"], "unexpected extra argument"),
        (["merge", "average", "a.safetensors", "a.safetensors", "x"], "Missing option '--output'"),
    ],
)
def test_neither_or_both(words: list[str], message: str, capsys: Any) -> None:
    assert main([*words, "--json"]) == 2
    assert message in json.loads(capsys.readouterr().out)["error"]["message"]
    assert not Path("x").exists()
    assert not Path("y").exists()


@pytest.mark.parametrize("option", ["--select", "--names"])
def test_select(option: str) -> None:
    assert main(["transform", "sparsify", "a.safetensors", "x", "--zeros", "1", option, "c"]) == 0
    stored = tensorkeep.load("x", framework="numpy")
    assert stored["a"].all()
    assert not stored["c"].any()

"""`tensorkeep merge` and `tensorkeep lora`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tensorkeep
from tensorkeep import LazyTensors, merging
from tensorkeep.cli import main

A, B, C = (np.random.default_rng(seed).standard_normal((6, 4)).astype(np.float32) for seed in range(3))

COMMANDS: dict[str, tuple[list[str], Callable[..., LazyTensors]]] = {
    "average": (["average", "a", "b", "c", "--weights", "2,1,1"], lambda *m: merging.average(*m, weights=[2, 1, 1])),
    "ema": (["ema", "a", "b", "c", "--decay", "0.9"], lambda *m: merging.ema(*m, decay=0.9)),
    "slerp": (["slerp", "a", "b", "--t", "0.3"], lambda a, b, _: merging.slerp(a, b, 0.3)),
    "task arithmetic": (
        ["task-arithmetic", "a", "b", "c", "--scale", "0.5"],
        lambda *m: merging.task_arithmetic(*m, scale=0.5),
    ),
    "ties": (["ties", "a", "b", "c", "--density", "0.5"], lambda *m: merging.ties(*m, density=0.5)),
    "dare": (
        ["dare", "a", "b", "--density", "0.5", "--seed", "3"],
        lambda a, b, _: merging.dare(a, b, density=0.5, seed=3),
    ),
    "dare ties": (
        ["dare-ties", "a", "b", "c", "--density", "0.5", "--seed", "3", "--weights", "1,0.5"],
        lambda *m: merging.dare_ties(*m, density=0.5, seed=3, weights=[1, 0.5]),
    ),
}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name, array in {"a": A, "b": B, "c": C}.items():
        tensorkeep.save_checkpoint({"layer.weight": array, "n": np.array(len(array))}, name)


@pytest.mark.parametrize(("words", "merge"), COMMANDS.values(), ids=COMMANDS)
def test_commands_do_what_the_functions_do(words: list[str], merge: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["merge", *words, "-o", "out", "--max-shard-size", "50"]) == 0

    assert capsys.readouterr().out.startswith("wrote out: 2 shards, 2 tensors")
    assert tensorkeep.verify("out")
    expected = merge(*map(tensorkeep.open, "abc"))
    assert tensorkeep.diff(expected, "out").is_equal


def test_what_is_left_out_and_what_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    tensorkeep.save_checkpoint({"layer.weight": B, "n": np.array(0)}, "b")

    assert main(["merge", "average", "a", "b", "-o", "out", "--json"]) == 2
    assert json.loads(capsys.readouterr().out)["error"]["tensor"] == "n"
    assert not Path("out").exists()
    assert main(["merge", "average", "a", "b", "-o", "out", "--drop", "n", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["n_tensors"] == 1
    assert main(["merge", "average", "a", "b", "-o", "b", "--select", "*.weight"]) == 2
    assert "there is a checkpoint at the destination" in capsys.readouterr().err
    assert main(["merge", "average", "a", "b", "-o", "b", "--integers", "last", "--force"]) == 0
    assert tensorkeep.load("b")["n"] == 0


def test_an_adapter_is_extracted_and_added_again(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lora", "extract", "a", "b", "--rank", "4", "-o", "adapter", "--base-model", "me/a"]) == 0
    out = capsys.readouterr().out
    assert out.splitlines()[1].split() == ["layer", "[6,", "4]", "4", f"{np.linalg.norm(B - A):.4g}", "0.00%"]
    assert "wrote adapter: 1 layer, 1 unchanged, in" in out

    assert main(["lora", "add", "a", "adapter", "-o", "again"]) == 0
    np.testing.assert_allclose(tensorkeep.load("again")["layer.weight"], B, atol=1e-6)
    assert main(["lora", "extract", "a", "c", "--rank", "1", "-o", "adapter", "--json"]) == 2
    capsys.readouterr()
    assert main(["lora", "extract", "a", "c", "--rank", "1", "-o", "adapter", "--json", "--force"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["replaced"]
    assert 0 < found["layers"][0].pop("error") < 1
    assert found["layers"][0]["rank"] == 1

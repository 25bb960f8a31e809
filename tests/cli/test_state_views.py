"""Whole states on the command line: what `inspect`, `slice`, `diff` and `verify` say of them."""

from __future__ import annotations

import dataclasses
import datetime as dt
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import tensorkeep
from tensorkeep.cli import main


@dataclasses.dataclass
class Config:
    lr: float = 0.1
    name: str = "adam"


def state_of(**changes: object) -> dict[str, Any]:
    weight, memory = torch.arange(12.0).reshape(4, 3), torch.arange(100.0)
    return {
        "model": {"embed": weight, "head": weight, "rows": weight[1:3]},
        "halves": [memory[:60], memory[40:]],
        "optim": {"param_groups": [{"lr": 0.001, "betas": (0.9, 0.999), "params": [0, 1]}]},
        "epoch": 3,
        "cfg": Config(),
        "when": dt.datetime(2026, 1, 2),
        "losses": [0.5] * 1000,
        "best": float("nan"),
        **changes,
    }


@pytest.fixture(params=["file", "shards"])
def path(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    if request.param == "shards":
        tensorkeep.save_checkpoint(state_of(), tmp_path / "state", max_shard_size=300)
        return tmp_path / "state"
    tensorkeep.save(state_of(), tmp_path / "state.safetensors")
    return tmp_path / "state.safetensors"


def run(capsys: pytest.CaptureFixture[str], *arguments: object, code: int = 0) -> list[str]:
    assert main([str(argument) for argument in arguments]) == code
    captured = capsys.readouterr()
    assert captured.err == ""
    return captured.out.splitlines()


def row(lines: list[str], name: str) -> str:
    """Return what stands behind a name, with single spaces."""
    (found,) = (line for line in lines if re.match(rf"[│├└─ ]*{re.escape(name)}  ", line))
    return " ".join(found.split(name, 1)[1].split())


def save_by_hand(path: Path, state: str, write_file: Any) -> Path:
    file: Path = write_file({"a": ("F32", (4,), 16)}, {"tensorkeep.state": state, "k": "v"}, name=path.name)
    return file


def test_a_state_dict_is_tensors_only(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    tensorkeep.save(torch.nn.Linear(2, 2).state_dict(), tmp_path / "model.safetensors")

    assert row(run(capsys, "inspect", tmp_path / "model.safetensors"), "  state") == "tensors only"


def test_inspect_shows_who_shares_memory(capsys: pytest.CaptureFixture[str], path: Path) -> None:
    lines = run(capsys, "inspect", path)

    assert row(lines, "  tensors") == "5 (112 parameters)"
    assert row(lines, "  state") == "9 values that are not tensors, 1 tensor tied to others, 3 views of others"
    assert row(lines, "embed") == "F32 [4, 3] 48 B 10.7 %"
    assert row(lines, "head") == "F32 [4, 3] 0 B 0.0 % = model.embed"
    assert row(lines, "rows") == "F32 [2, 3] 0 B 0.0 % view of model.embed[1:3]"
    assert row(lines, "0") == "F32 [60] 0 B 0.0 % view of halves.0#storage[0:60]"
    assert row(lines, "1") == "F32 [60] 0 B 0.0 % view of halves.0#storage[40:100]"
    assert row(lines, "0#storage") == "F32 [100] 400 B 89.3 % memory of 2 tensors"
    assert row(lines, "F32") == "5 112 448 B 100.0 %"
    assert not any("tensorkeep.state" in line or "model.head =" in line for line in lines)


def test_inspect_shows_the_rest_as_a_tree(capsys: pytest.CaptureFixture[str], path: Path) -> None:
    lines = run(capsys, "inspect", path)

    values = lines[next(place for place, line in enumerate(lines) if line.startswith("state  ")) :]
    assert values == [
        "state                 value",
        "optim.param_groups.0",
        "├─ lr                 0.001",
        "├─ betas              (0.9, 0.999)",
        "└─ params             [0, 1]",
        "epoch                 3",
        f"cfg                   {__name__}:Config(lr=0.1, name='adam')",
        "when                  2026-01-02 00:00:00",
        f"losses                [{'0.5, ' * 14}0… (1,000 items)",
        "best                  nan",
    ]


def test_inspect_shows_thirty_values_or_all(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    tensorkeep.save({"w": np.ones(2), **{f"v{i}": i for i in range(270)}}, tmp_path / "many")

    assert run(capsys, "inspect", tmp_path / "many")[-2:] == ["v29    29", "… 240 more, --state shows all"]
    assert run(capsys, "inspect", "--state", tmp_path / "many")[-1] == "v269   269"
    assert run(capsys, "inspect", "--filter", "v2?", tmp_path / "many")[-10:] == [
        f"v{i}    {i}" for i in range(20, 30)
    ]


def test_inspect_json(capsys: pytest.CaptureFixture[str], path: Path) -> None:
    report = json.loads("\n".join(run(capsys, "inspect", "--json", path)))

    tensors = {tensor["name"]: tensor for tensor in report["tensors"]}
    assert (report["n_tensors"], report["data_nbytes"]) == (5, 448)
    assert sum(tensor["nbytes"] for tensor in tensors.values()) == 448
    assert {name: tensor["of"] for name, tensor in tensors.items() if "of" in tensor} == {
        "model.head": "model.embed",
        "model.rows": "model.embed",
        "halves.0": "halves.0#storage",
        "halves.1": "halves.0#storage",
    }
    assert tensors["halves.0#storage"]["n_sharing"] == 2
    assert report["metadata"] == {"format": "pt"}
    assert report["state"] == {
        "version": 1,
        "library": "torch",
        "n_aliases": 4,
        "n_values": 9,
        "problem": None,
        "aliases": {
            "model.head": {"of": "model.embed"},
            "model.rows": {"of": "model.embed", "offset": 12, "shape": [2, 3]},
            "halves.0": {"of": "halves.0#storage", "shape": [60]},
            "halves.1": {"of": "halves.0#storage", "offset": 160, "shape": [60]},
        },
        "values": {
            "optim.param_groups.0.lr": 0.001,
            "optim.param_groups.0.betas": [0.9, 0.999],
            "optim.param_groups.0.params": [0, 1],
            "epoch": 3,
            "cfg.lr": 0.1,
            "cfg.name": "adam",
            "when": "2026-01-02 00:00:00",
            "losses": [0.5] * 1000,
            "best": "nan",
        },
    }


def test_tensors_alone_are_shown_as_ever(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    tensorkeep.save({"a": np.ones(2, np.float32)}, tmp_path / "flat")

    lines = run(capsys, "inspect", tmp_path / "flat")

    assert not any("state" in line or "memory" in line for line in lines)


BROKEN = {
    "no owner": ('{"state":1,"aliases":{"b":{"of":"zz"}}}', "no `zz`"),
    "outside": ('{"state":1,"aliases":{"b":{"of":"a","offset":8}}}', "`b` is declared as a view of `a`"),
    "far": ('{"state":1,"aliases":{"b":{"of":"a","shape":[9223372036854775807]}}}', "`b` is declared as a view"),
    "stored itself": ('{"state":1,"aliases":{"a":{"of":"a"}}}', "`a` is declared as a view of `a`"),
    "no JSON": ("hello", "JSON is malformed"),
    "no value": ('{"state":1,"tree":["dict","a"]}', "a key without a value"),
    "no tensor": ('{"state":1,"tree":["dict","x",{}]}', "tensor `?x"),
    "no tag": ('{"state":1,"tree":[]}', "no tag|without a tag"),
    "deep": ('{"state":1,"tree":' + '["list",' * 300 + "1" + "]" * 300 + "}", "is nested too deep"),
}


@pytest.mark.parametrize("kind", BROKEN)
def test_what_cannot_be_read_is_told_and_tensors_are_listed(
    capsys: pytest.CaptureFixture[str], write_file: Any, kind: str
) -> None:
    text, told = BROKEN[kind]
    file = save_by_hand(Path("broken.safetensors"), text, write_file)

    lines = run(capsys, "inspect", file)
    assert re.search(told, row(lines, "  state"))
    assert row(lines, "a").startswith("F32 [4] 16 B")
    report = json.loads("\n".join(run(capsys, "inspect", "--json", file)))
    assert re.search(told, report["state"]["problem"])
    lines = run(capsys, "verify", file, code=1)
    assert lines[0] == "state  broken.safetensors"
    assert re.search(told, lines[1])
    assert main(["diff", str(file), str(file)]) == 2
    assert re.search(told, capsys.readouterr().err)


def test_a_later_version(capsys: pytest.CaptureFixture[str], write_file: Any) -> None:
    file = save_by_hand(Path("later.safetensors"), '{"state":7,"tree":"?"}', write_file)

    lines = run(capsys, "inspect", file)

    assert "later version" in row(lines, "  state")
    assert "Update tensorkeep" in row(lines, "  state")
    assert row(lines, "a").startswith("F32 [4] 16 B")
    assert row(lines, "  metadata") == "k = v"


def test_hostile_texts_reach_no_terminal(capsys: pytest.CaptureFixture[str], write_file: Any) -> None:
    evil = "\x1b[31m\n\u202e"
    tree = [
        "dict",
        evil,
        evil,
        "x",
        ["dataclass", evil, evil, 1],
        "y",
        ["list", ["dict"], evil],
        "z",
        ["enum", evil, evil, 1],
    ]
    big = ["int", "0x" + "f" * 10_000]
    files = []
    for name, last in (("a", big), ("b", ["bytes", "AAEC"])):
        text = json.dumps({"state": 1, "tree": [*tree, "last", last, evil + name, evil]})
        files.append(save_by_hand(Path(f"{name}.safetensors"), text, write_file))

    for arguments in (["inspect", files[0]], ["inspect", "--json", files[0]], ["slice", files[0], "last"]):
        assert all(line.isprintable() for line in run(capsys, *arguments))
    for options in ([], ["--json"]):
        assert all(line.isprintable() for line in run(capsys, "diff", *files, *options, code=1))


def test_slice_prints_values_and_views(capsys: pytest.CaptureFixture[str], path: Path) -> None:
    assert run(capsys, "slice", path, "epoch") == ["3"]
    assert run(capsys, "slice", path, "optim.param_groups.0.betas") == ["(0.9, 0.999)"]
    assert run(capsys, "slice", path, "cfg") == [f"{__name__}:Config(lr=0.1, name='adam')"]
    assert run(capsys, "slice", path, "halves.1", "[:2]") == ["halves.1  F32  [2] of [60]", "[40. 41.]"]
    assert main(["slice", str(path), "epochs"]) == 2
    assert main(["slice", str(path), "epoch", "[0]"]) == 2


def test_diff_of_a_state_with_itself(capsys: pytest.CaptureFixture[str], path: Path, tmp_path: Path) -> None:
    tensorkeep.save(state_of(), tmp_path / "again")

    lines = run(capsys, "diff", path, tmp_path / "again")

    assert lines[0].startswith("equal: 5 tensors (5 by their digests, without reading them")


def test_diff_shows_values_types_and_ties(capsys: pytest.CaptureFixture[str], path: Path, tmp_path: Path) -> None:
    other = state_of(epoch=3.0, cfg=Config(lr=0.2), new={"a": 1}, losses=[0.5] * 999 + [0.25])
    other["model"]["head"] = other["model"]["head"].clone()
    del other["when"]
    tensorkeep.save(other, tmp_path / "other")

    lines = run(capsys, "diff", path, tmp_path / "other", code=1)

    assert row(lines, "model.head") == "= model.embed -> memory of its own"
    assert row(lines, "epoch") == "3 -> 3.0"
    assert row(lines, "cfg.lr") == "0.1 -> 0.2"
    assert row(lines, "when") == "2026-01-02 00:00:00 -> -"
    assert row(lines, "new") == "- -> {'a': 1}"
    assert row(lines, "losses") == "…5, 0.5, 0.5, 0.5] -> …5, 0.5, 0.5, 0.25]"
    assert ", 1 tensor tied differently, 5 values differ, 5 equal" in lines[-1]
    assert run(capsys, "diff", path, tmp_path / "other", "--select", "optim.*") == ["equal: 0 tensors"]
    assert run(capsys, "diff", path, tmp_path / "other", "--select", "epoch", code=1)[-1].endswith(
        "1 value differs, 0 equal"
    )


def test_diff_json(capsys: pytest.CaptureFixture[str], path: Path, tmp_path: Path) -> None:
    tensorkeep.save(state_of(epoch=4), tmp_path / "other")

    report = json.loads("\n".join(run(capsys, "diff", "--json", path, tmp_path / "other", code=1)))

    assert (report["is_equal"], report["changed"], report["ties"]) == (False, [], [])
    assert report["data"] == [{"name": "epoch", "a": "3", "b": "4"}]


def test_verify_of_a_state(capsys: pytest.CaptureFixture[str], path: Path) -> None:
    assert run(capsys, "verify", path)[-1].startswith("whole: ")

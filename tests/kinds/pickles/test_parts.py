"""`load(..., only=)` of pickles: the chosen parts, nested and tied as they were, and nothing else is read."""

from __future__ import annotations

import pickle
from argparse import Namespace
from collections import Counter, OrderedDict, defaultdict, deque
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import tensorkeep
from tensorkeep.errors import LimitError, TensorNotFoundError, UnsupportedError
from tensorkeep.formats.pickles import Unknown
from tests.support.pickles.honest_files import FORMS, saved
from tests.support.state.exactly import assert_exactly

BASE = torch.arange(24.0)
STATE: dict[Any, Any] = {
    "model": OrderedDict(embed=BASE.view(4, 6), head=BASE.view(4, 6), rows=BASE[6:18].view(2, 6)),
    "end": BASE[20:],
    "optim": {"state": {0: {"exp_avg": torch.ones(3), "step": 5}}, "param_groups": [{"lr": 0.1}, {"lr": 0.2}]},
    "pair": (torch.zeros(2), "text", [1, {"loss": 0.5}]),
    "defaults": defaultdict(None, {"a": {"b": 1}}),
    "counted": Counter(a=1, b=2),
    "recent": deque([1.0, 2.0, 3.0], maxlen=5),
    "empty": {"x": {}},
    "seen": {1, 2},
    "step": 7,
    5: "five",
}
PATTERNS: list[Any] = [
    *("model.*", "model", "model.rows", "*.embed", "optim.state.*", "optim.state.0.step", "*.lr", "*.param_groups.1"),
    *("pair", "pair.0", "pair.2.1.loss", "pair.2", "defaults.a.*", "counted.b", "recent.1", "empty.*", "empty"),
    *("seen", "5", "step", "*", ["model.head", "end", "step"], lambda name: name.count(".") == 2),
]


@pytest.mark.parametrize("framework", ["numpy", "torch"])
@pytest.mark.parametrize("pattern", PATTERNS, ids=lambda pattern: getattr(pattern, "__name__", str(pattern)))
def test_a_part_is_that_of_the_same_state_in_safetensors(tmp_path: Path, pattern: Any, framework: str) -> None:
    tensorkeep.save(STATE, tmp_path / "state.safetensors")
    expected = tensorkeep.load(tmp_path / "state.safetensors", only=pattern, framework=framework)
    assert_exactly(tensorkeep.load(saved(STATE), only=pattern, framework=framework), expected)


@pytest.mark.parametrize("form", FORMS)
def test_ties_are_kept_and_only_the_memory_of_the_part_is(form: str) -> None:
    large = torch.arange(1_000_000.0)
    content = {"all": large, "rows": large[1000:1012].view(3, 4), "column": large[1001:1012:4], "none": large[:0]}
    part = tensorkeep.load(saved(content, form), only=["rows", "column", "none"], framework="torch")
    part["rows"][1, 1] = -1
    assert part["column"].tolist() == [1001, -1, 1009]
    assert part["none"].shape == (0,)
    assert part["rows"].untyped_storage().nbytes() < 10_000


def test_parameters_and_one_object_in_two_places() -> None:
    weight = nn.Parameter(torch.ones(3))
    group = {"params": [weight]}
    part = tensorkeep.load(
        saved({"a": weight, "groups": [group, group], "b": 1}), only=["a", "groups.*"], framework="torch"
    )
    assert part["groups"][0] is part["groups"][1]
    assert part["groups"][0]["params"][0] is part["a"]
    assert part["a"].requires_grad


def test_what_is_not_chosen_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "model.pt"
    torch.save({"small": torch.ones(4), "large": torch.zeros(1_000_000)}, path)
    read: list[int] = []

    class Counted:
        def __init__(self) -> None:
            self.file = path.open("rb")

        def __getattr__(self, name: str) -> Any:
            return getattr(self.file, name)

        def read(self, size: int = -1) -> bytes:
            data = self.file.read(size)
            read.append(len(data))
            return data

        def readinto(self, buffer: Any) -> int:
            n = self.file.readinto(buffer)
            read.append(n)
            return n

    assert tensorkeep.load(Counted(), only="small")["small"].tolist() == [1, 1, 1, 1]
    assert sum(read) < 1_000_000


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(2, 3)
        self.again = self.first
        self.note = {"lr": 0.5}


def test_parts_of_an_object_have_the_names_of_its_state_dict() -> None:
    file = saved(Net())
    net = tensorkeep.load(file, only="first.weight")
    assert type(net) is Unknown
    first = net.state["_modules"]["first"]
    assert list(net.state["_modules"]) == ["first"]
    assert first.state["_parameters"]["weight"].shape == (3, 2)
    assert "bias" not in first.state["_parameters"]
    again = tensorkeep.load(file, only="again.bias").state["_modules"]["again"]
    assert again.state["_parameters"]["bias"].shape == (3,)
    assert tensorkeep.load(file, only="note.lr").state == {"note": {"lr": 0.5}}
    both = tensorkeep.load(saved({"args": Namespace(lr=1, seed=2)}), only="args.lr")
    assert both == {"args": {"lr": 1}}


def test_parts_of_sparse_tensors_choose_the_whole() -> None:
    sparse = torch.eye(3).to_sparse()
    part = tensorkeep.load(saved({"s": sparse, "t": torch.ones(1)}), only="s.values", framework="torch")
    assert list(part) == ["s"]
    assert torch.equal(part["s"].to_dense(), torch.eye(3))


def test_several_files_are_chosen_from_by_the_names_of_the_checkpoint(tmp_path: Path) -> None:
    for rank in (0, 1):
        folder = tmp_path / f"mp_rank_0{rank}"
        folder.mkdir()
        torch.save(
            {"model": {"w": torch.full((2,), rank), "b": torch.ones(1)}, "step": 3}, folder / "model_optim_rng.pt"
        )
    with tensorkeep.open(tmp_path) as file:
        names = list(file)
    assert "mp_rank_01.model_optim_rng.model.w" in names
    part = tensorkeep.load(tmp_path, only="mp_rank_01.*.w")
    assert_exactly(part, {"mp_rank_01/model_optim_rng.pt": {"model": {"w": np.array([1, 1])}}})
    both = tensorkeep.load(tmp_path, only="*.step")
    assert list(both.values()) == [{"step": 3}, {"step": 3}]
    with pytest.raises(TensorNotFoundError, match="nothing is chosen"):
        tensorkeep.load(tmp_path, only="nobody")


def test_what_cannot_be_chosen() -> None:
    with pytest.raises(TensorNotFoundError, match=r"nothing is chosen.*Did you mean `model.rows`"):
        tensorkeep.load(saved(STATE), only="model.row")
    with pytest.raises(TypeError, match="only"):
        tensorkeep.load(saved(STATE), only=5)
    with pytest.raises(UnsupportedError, match="ties 'keep' is invalid"):
        tensorkeep.load(saved(STATE), only="model", ties="keep")
    assert tensorkeep.load(pickle.dumps(5), only="*") == 5


def test_long_names_of_many_values_are_refused_before_they_are_made() -> None:
    with pytest.raises(LimitError, match="too long in total"):
        tensorkeep.load(pickle.dumps({"x" * 9_999: [{}] * 20_000}), only="y")

"""Patches applied to models in memory: bit for bit, in place, all or nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import tensorkeep
from tensorkeep import patches
from tensorkeep.errors import IntegrityError, RefusedError
from tensorkeep.torch import apply_patch


class Model(nn.Module):
    def __init__(self, seed: int = 0) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.embed = nn.Embedding(50, 16, dtype=torch.bfloat16)
        self.head = nn.Linear(16, 50, bias=False, dtype=torch.bfloat16)
        self.head.weight = self.embed.weight
        self.norm = nn.BatchNorm1d(16)
        self.conv = nn.Conv2d(4, 4, 3).to(memory_format=torch.channels_last)
        self.register_buffer("phases", torch.randn(7, dtype=torch.complex64))
        self.register_buffer("mask", torch.rand(9) > 0.5)
        self.frozen = nn.Parameter(torch.randn(3), requires_grad=False)


def trained(model: nn.Module, steps: int) -> dict[str, Any]:
    """Return the state of the model after some steps: some bits of most tensors change."""
    state = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    state["head.weight"] = state["embed.weight"]
    for name in ("embed.weight", "norm.weight", "conv.weight", "phases", "mask"):
        flat = torch.view_as_real(state[name]) if state[name].is_complex() else state[name]
        bits = flat.view({1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[flat.element_size()])
        bits[bits.shape[0] // 2 :] += 0 if name == "mask" else steps
        bits[:1] ^= 1
    return state


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """States 0 to 2 of a model, and the patches between them."""
    for number in range(3):
        state = trained(Model(), number) if number else Model().state_dict()
        tensorkeep.save(state, tmp_path / f"{number}.safetensors")
        if number:
            patches.make(*(tmp_path / f"{n}.safetensors" for n in (number - 1, number)), tmp_path / f"p{number}")
    return tmp_path


def bits_of(state: dict[str, torch.Tensor]) -> dict[str, bytes]:
    return {
        name: tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes() for name, tensor in state.items()
    }


def test_a_model_becomes_the_next_step_in_place(folder: Path) -> None:
    model = Model()
    places = {name: tensor.data_ptr() for name, tensor in model.state_dict().items()}
    version = model.embed.weight._version

    apply_patch(model, folder / "p1")
    once = bits_of(model.state_dict())
    apply_patch(model, folder / "p2")

    assert once == bits_of(tensorkeep.load(folder / "1.safetensors", framework="torch"))
    assert bits_of(model.state_dict()) == bits_of(tensorkeep.load(folder / "2.safetensors", framework="torch"))
    assert {name: tensor.data_ptr() for name, tensor in model.state_dict().items()} == places
    assert model.head.weight is model.embed.weight
    assert model.embed.weight._version > version
    both = Model()
    apply_patch(both, folder / "p1", folder / "p2")
    assert bits_of(both.state_dict()) == bits_of(model.state_dict())


def test_another_model_stays_as_it_is(folder: Path) -> None:
    nearly = Model()
    nearly.conv.weight.data[-1, -1, -1, -1] += 1
    for model in (Model(seed=1), nearly):
        before = bits_of(model.state_dict())
        with pytest.raises(IntegrityError, match="Nothing was changed"):
            apply_patch(model, folder / "p1")
        assert bits_of(model.state_dict()) == before


def test_tensors_that_stay_are_compared_too(folder: Path) -> None:
    model = Model()
    model.frozen.data[0] += 1
    before = bits_of(model.state_dict())
    with pytest.raises(IntegrityError, match=r"although the tensors that change are.*Nothing was changed"):
        apply_patch(model, folder / "p1")
    assert bits_of(model.state_dict()) == before

    apply_patch(model, folder / "p1", check="changes")
    new = tensorkeep.load(folder / "1.safetensors", framework="torch")
    assert bits_of(model.state_dict()) == bits_of({**new, "frozen": model.frozen.data})
    with pytest.raises(ValueError, match="check must be one of"):
        apply_patch(model, folder / "p2", check="nothing")  # type: ignore[arg-type] # that is the test


@pytest.mark.parametrize("changes", ["embed.weight", "frozen"])
@pytest.mark.parametrize("lacks", [["head.weight"], ["norm.num_batches_tracked"]])
def test_a_checkpoint_may_lack_tied_names_and_counters(tmp_path: Path, lacks: list[str], changes: str) -> None:
    model = Model()
    state = {name: tensor.clone() for name, tensor in model.state_dict().items() if name not in lacks}
    tied = {"embed.weight", "head.weight"}
    new = {name: tensor + (name == changes or {name, changes} <= tied) for name, tensor in state.items()}
    new["mask"] = state["mask"]
    for name, tensors in (("0", state), ("1", new)):
        tensorkeep.save(tensors, tmp_path / name)
    patches.make(tmp_path / "0", tmp_path / "1", tmp_path / "p")

    apply_patch(model, tmp_path / "p")

    patched = {name: tensor for name, tensor in model.state_dict().items() if name not in lacks}
    assert bits_of(patched) == bits_of(new)


def test_a_chain_must_lead_from_one_to_the_next_in_all_tensors(folder: Path, tmp_path: Path) -> None:
    model = Model()
    state = {**trained(model, 1), "frozen": torch.ones(3)}
    tensorkeep.save(state, tmp_path / "other")
    tensorkeep.save({**state, "mask": ~state["mask"]}, tmp_path / "after")
    patches.make(tmp_path / "other", tmp_path / "after", tmp_path / "p")
    with pytest.raises(IntegrityError, match="does not follow"):
        apply_patch(model, folder / "p1", tmp_path / "p")


def test_patches_that_do_not_fit_are_refused(folder: Path, tmp_path: Path) -> None:
    model = Model()
    before = bits_of(model.state_dict())
    with pytest.raises(IntegrityError, match="of the model is not"):
        apply_patch(model, folder / "p2")
    with pytest.raises(IntegrityError, match="does not follow"):
        apply_patch(model, folder / "p1", folder / "p1")

    larger = {**trained(model, 1), "more": torch.ones(3)}
    other = {**trained(model, 1), "frozen": torch.ones(4)}
    untied = {**trained(model, 1), "head.weight": trained(model, 2)["embed.weight"]}
    left = {**trained(model, 1), "head.weight": model.state_dict()["head.weight"]}
    for name, state in (("larger", larger), ("other", other), ("untied", untied), ("left", left)):
        tensorkeep.save(state, tmp_path / f"{name}.safetensors")
        patches.make(folder / "0.safetensors", tmp_path / f"{name}.safetensors", tmp_path / name)
        with pytest.raises(RefusedError, match="does not fit the model"):
            apply_patch(model, tmp_path / name)
    patches.chain([tmp_path / "left"], tmp_path / "chained")
    with pytest.raises(RefusedError, match="tied"):
        apply_patch(model, tmp_path / "chained")
    assert bits_of(model.state_dict()) == before


class Fused(nn.Module):
    """A parameter, and another that is a part of it."""

    def __init__(self) -> None:
        super().__init__()
        self.fused = nn.Parameter(torch.arange(12.0).reshape(6, 2))
        self.part = nn.Parameter(self.fused.detach()[:2])


class Expanded(nn.Module):
    """A buffer whose elements are one."""

    def __init__(self) -> None:
        super().__init__()
        self.plain = nn.Parameter(torch.zeros(3))
        self.register_buffer("wide", torch.zeros(1).expand(4))


@pytest.mark.parametrize("kind", [Fused, Expanded])
def test_elements_that_share_memory_are_refused_before_anything_changes(
    kind: type[nn.Module], tmp_path: Path
) -> None:
    state = {name: tensor.clone() for name, tensor in kind().state_dict().items()}
    tensorkeep.save(state, tmp_path / "0.safetensors")
    tensorkeep.save({name: tensor + 1 for name, tensor in state.items()}, tmp_path / "1.safetensors")
    patches.make(tmp_path / "0.safetensors", tmp_path / "1.safetensors", tmp_path / "p")
    model = kind()

    with pytest.raises(RefusedError, match="memory"):
        apply_patch(model, tmp_path / "p")

    assert bits_of(model.state_dict()) == bits_of(state)

"""Checkpoints into models whose parts are here and there: as accelerate does it, and where it goes wrong."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import accelerate
import pytest
import torch
import transformers
from accelerate import init_empty_weights
from torch import nn

import tensorkeep
from tensorkeep.errors import IntegrityError, StateDictMismatchError, TensorkeepError, UnsupportedError
from tensorkeep.integrations.accelerate import (
    Accelerator,
    OffloadedWeights,
    load_checkpoint_and_dispatch,
    load_checkpoint_in_model,
)
from tests.support import SUPPORT, forks

HERE = SUPPORT / "integrations" / "accelerate"


class Net(nn.Module):
    """Tied weights, a normalization with buffers that are saved, a buffer that is not, a parameter of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(16, 8)
        self.first = nn.Linear(8, 8)
        self.normal = nn.BatchNorm1d(8)
        self.block = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8))
        self.head = nn.Linear(8, 16, bias=False)
        self.scale = nn.Parameter(torch.tensor(2.0))
        self.register_buffer("constant", torch.full((8,), 0.5), persistent=False)
        self.tie_weights()

    def tie_weights(self) -> None:
        self.head.weight = self.embedding.weight

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        hidden = self.normal(self.first(self.embedding(tokens) + self.constant.to(self.embedding.weight.dtype)))
        return self.head(self.block(hidden)) * self.scale


TOKENS = torch.arange(16)
PARTS = ("embedding", "first", "normal", "block.0", "block.1", "head", "scale")

MAPS: dict[str, Any] = {
    "none": None,
    "cpu": {"": "cpu"},
    "auto": "auto",
    "sequential": "sequential",
    "disk": {"": "disk"},
    "a part": {part: "disk" if part in {"first", "block.1"} else "cpu" for part in PARTS},
    "a norm": {part: "disk" if part == "normal" else "cpu" for part in PARTS},
    "one of two that are tied": {part: "disk" if part == "head" else "cpu" for part in PARTS},
    "the other": {part: "disk" if part == "embedding" else "cpu" for part in PARTS},
    "all but one": {part: "cpu" if part == "first" else "disk" for part in PARTS},
}


@pytest.fixture(scope="module")
def trained() -> Net:
    torch.manual_seed(0)
    net = Net()
    net.normal.running_mean.uniform_(1, 3)
    net.normal.running_var.uniform_(1, 3)
    return net.eval()


def empty(*, tied: bool = True) -> Net:
    with init_empty_weights():
        net = Net()
    if tied:
        net.tie_weights()
    return net.eval()


def save_as(kind: str, net: nn.Module, folder: Path) -> Path:
    """Save a model as one kind of checkpoint."""
    path = folder / kind
    if kind == "sharded":
        tensorkeep.save_checkpoint(net.state_dict(), path, max_shard_size=300)
    elif kind == "accelerate":
        accelerate.Accelerator(cpu=True).save_model(net, path, max_shard_size=400)
    elif kind == "weights.bin":
        torch.save(net.state_dict(), path)
    elif kind == "state":
        accelerator = Accelerator(cpu=True)
        accelerator.prepare(net)
        accelerator.save_state(path)
    else:
        tensorkeep.save(net.state_dict(), path)
    return path


KINDS = ("sharded", "accelerate", "weights.bin", "state", "model.safetensors")
INFERRED = {"auto", "sequential"}
"""Maps that accelerate finds; for weights of this model that are tied it does not find any."""


@pytest.mark.parametrize(
    ("kind", "where"),
    [
        (kind, where)
        for kind, where in itertools.product(KINDS, MAPS)
        if not (kind == "accelerate" and where in INFERRED)  # which leaves out one of two tied names
    ],
)
def test_it_computes_the_same(tmp_path: Path, trained: Net, kind: str, where: str) -> None:
    path = save_as(kind, trained, tmp_path)
    expected = trained(TOKENS)
    for offload_buffers in (False, True):
        net = empty(tied=where not in INFERRED)

        loaded = load_checkpoint_and_dispatch(net, path, MAPS[where], offload_buffers=offload_buffers)

        assert loaded is net
        for _ in range(2):
            torch.testing.assert_close(net(TOKENS), expected, rtol=1e-6, atol=1e-6)
    assert not list(tmp_path.rglob("*.dat"))


@pytest.fixture(scope="module")
def gpt2(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.manual_seed(0)
    config = transformers.GPT2Config(vocab_size=128, n_positions=32, n_embd=32, n_layer=3, n_head=2)
    path = tmp_path_factory.mktemp("gpt2") / "model"
    transformers.GPT2LMHeadModel(config).save_pretrained(path, max_shard_size="100KB")
    return path


def empty_gpt2(path: Path) -> Any:
    config = transformers.GPT2Config.from_pretrained(path)
    with init_empty_weights():
        model = transformers.GPT2LMHeadModel(config)
    model.tie_weights()
    return model.eval()


@pytest.mark.parametrize(
    ("dtype", "on_disk"),
    [(None, ("h.1",)), ("bfloat16", ("h.0", "h.2", "ln_f")), (torch.float64, ("h.1", "ln_f"))],
)
def test_transformers_as_accelerate_does_it(gpt2: Path, tmp_path: Path, dtype: Any, on_disk: tuple[str, ...]) -> None:
    parts = ("wte", "wpe", "h.0", "h.1", "h.2", "ln_f")
    device_map = {f"transformer.{part}": "disk" if part in on_disk else "cpu" for part in parts} | {"lm_head": "cpu"}
    tokens = torch.arange(20)[None]
    model = accelerate.load_checkpoint_and_dispatch(
        empty_gpt2(gpt2), gpt2, device_map, offload_folder=tmp_path / "offloaded", dtype=dtype
    )
    expected = model(tokens).logits

    ours = load_checkpoint_and_dispatch(empty_gpt2(gpt2), gpt2, device_map, dtype=dtype)

    assert {name: value.dtype for name, value in ours.state_dict().items()} == {
        name: value.dtype for name, value in model.state_dict().items()
    }
    assert {name for name, value in ours.state_dict().items() if value.is_meta} == {
        name for name, value in model.state_dict().items() if value.is_meta
    }
    torch.testing.assert_close(ours(tokens).logits, expected, rtol=1e-6, atol=1e-6)
    assert ours.transformer.h[1].attn.c_attn.weight.is_meta == ("h.1" in on_disk)


def test_names_that_do_not_fit(tmp_path: Path, trained: Net) -> None:
    state = trained.state_dict()
    del state["block.1.bias"]
    tensorkeep.save(state | {"old": torch.ones(2)}, tmp_path / "model.safetensors")
    for device_map in (None, {"": "cpu"}, {"": "disk"}, MAPS["a part"]):
        net = empty()
        with pytest.raises(StateDictMismatchError) as raised:
            load_checkpoint_and_dispatch(net, tmp_path, device_map)
        assert (raised.value.missing, raised.value.unexpected) == (("block.1.bias",), ("old",))
        assert all(value.is_meta for value in net.parameters())
        tensorkeep.save(state | {"block.1.bias": torch.ones(9)}, tmp_path / "other.safetensors")
        with pytest.raises(StateDictMismatchError) as raised:
            load_checkpoint_and_dispatch(empty(), tmp_path / "other.safetensors", device_map, strict=False)
        assert raised.value.mismatched == (("block.1.bias", (8,), (9,)),)


def test_ties_that_were_not_made_are_advised(tmp_path: Path, trained: Net) -> None:
    state = trained.state_dict()
    del state["head.weight"]
    tensorkeep.save(state, tmp_path / "model.safetensors")

    with pytest.raises(StateDictMismatchError, match=r"missing: `head\.weight`.*model\.tie_weights\(\)"):
        load_checkpoint_and_dispatch(empty(tied=False), tmp_path, {"": "cpu"})

    net = load_checkpoint_and_dispatch(empty(), tmp_path, {"": "cpu"})
    assert net.head.weight is net.embedding.weight


@pytest.mark.parametrize("device_map", [None, {"": "cpu"}, {"": "disk"}, MAPS["the other"]])
@pytest.mark.parametrize("digests", [True, False])
def test_ties_of_different_numbers(
    tmp_path: Path, trained: Net, device_map: Mapping[str, Any] | None, digests: bool
) -> None:
    state = trained.state_dict() | {"head.weight": trained.head.weight.detach() + 1}
    tensorkeep.save(state, tmp_path / "model.safetensors", digests=digests)
    net = empty()

    with pytest.raises(StateDictMismatchError, match="two that differ"):
        load_checkpoint_and_dispatch(net, tmp_path, device_map)

    assert all(value.is_meta for value in net.parameters())
    equal = state | {"head.weight": trained.head.weight.detach().clone()}
    tensorkeep.save(equal, tmp_path / "model.safetensors", digests=digests)
    load_checkpoint_and_dispatch(net, tmp_path, device_map)
    torch.testing.assert_close(net(TOKENS), trained(TOKENS), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("away", ["../elsewhere/model.safetensors", "{}/elsewhere/model.safetensors"])
def test_an_index_leads_nowhere_else(tmp_path: Path, trained: Net, away: str) -> None:
    inside, outside = tmp_path / "inside", tmp_path / "elsewhere"
    inside.mkdir()
    outside.mkdir()
    tensorkeep.save(trained.state_dict(), outside / "model.safetensors")
    weight_map = dict.fromkeys(trained.state_dict(), away.format(tmp_path))
    (inside / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))

    for device_map in (None, {"": "cpu"}, {"": "disk"}):
        with pytest.raises(TensorkeepError):
            load_checkpoint_and_dispatch(empty(), inside, device_map)


def flip(path: Path, what: torch.Tensor) -> None:
    content = bytearray(path.read_bytes())
    content[content.index(what.detach().contiguous().numpy().tobytes()) + 5] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize("device_map", [None, {"": "cpu"}, {"": "disk"}])
def test_a_flipped_bit_is_found_before_anything_is_loaded(
    tmp_path: Path, trained: Net, device_map: Mapping[str, Any] | None
) -> None:
    path = save_as("model.safetensors", trained, tmp_path)
    load_checkpoint_and_dispatch(empty(), path, device_map, verify=True)
    flip(path, trained.block[1].weight)
    net = empty()

    with pytest.raises(IntegrityError, match=r"block\.1\.weight"):
        load_checkpoint_and_dispatch(net, path, device_map, verify=True)

    assert all(value.is_meta for value in net.parameters())


@pytest.mark.parametrize("dtype", [None, torch.bfloat16])
def test_a_bit_that_flips_later_is_found_when_it_is_read(
    tmp_path: Path, trained: Net, dtype: torch.dtype | None
) -> None:
    path = save_as("model.safetensors", trained, tmp_path)
    net = load_checkpoint_and_dispatch(empty(), path, {"": "disk"}, dtype=dtype, verify=True)
    careless = load_checkpoint_and_dispatch(empty(), path, {"": "disk"}, dtype=dtype)
    net(TOKENS)
    place = path.read_bytes().index(trained.block[1].weight.detach().numpy().tobytes()) + 5
    with path.open("r+b") as file:
        file.seek(place)
        file.write(b"?")

    with pytest.raises(IntegrityError, match=r"block\.1\.weight"):
        net(TOKENS)
    careless(TOKENS)


def test_what_has_no_digest_is_not_called_verified(tmp_path: Path, trained: Net) -> None:
    path = save_as("accelerate", trained, tmp_path)

    with pytest.raises(IntegrityError, match="tensors without one"):
        load_checkpoint_and_dispatch(empty(), path, {"": "disk"}, verify=True)


def test_part_of_a_training_state(tmp_path: Path, trained: Net) -> None:
    tensorkeep.save({"model": trained.state_dict(), "step": 7}, tmp_path / "state.safetensors")
    view = tensorkeep.open(tmp_path / "state.safetensors", framework="torch").select("model.*").strip_prefix("model.")

    net = load_checkpoint_and_dispatch(empty(), view, MAPS["a part"])

    torch.testing.assert_close(net(TOKENS), trained(TOKENS), rtol=1e-6, atol=1e-6)


def test_weights_on_the_disk_are_saved_from_there(tmp_path: Path, trained: Net) -> None:
    path = save_as("sharded", trained, tmp_path)
    net = load_checkpoint_and_dispatch(empty(), path, {"": "disk"})

    Accelerator(cpu=True).save_model(net, tmp_path / "again", max_shard_size=500)
    Accelerator(cpu=True).save_model(net, path)  # over the files that they are read from

    for saved in (tmp_path / "again", path):
        assert tensorkeep.verify(saved).is_whole
        again = load_checkpoint_and_dispatch(empty(), saved, {"": "cpu"})
        torch.testing.assert_close(again(TOKENS), trained(TOKENS), rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(net(TOKENS), trained(TOKENS), rtol=1e-6, atol=1e-6)


def test_weights_that_accelerate_put_away_are_saved(tmp_path: Path, trained: Net) -> None:
    net = Net()
    net.load_state_dict(trained.state_dict())
    accelerate.disk_offload(net, tmp_path / "away")

    Accelerator(cpu=True).save_model(net, tmp_path / "model")

    saved = tensorkeep.load(tmp_path / "model")
    assert all(torch.equal(saved[name], value) for name, value in trained.state_dict().items())
    with pytest.raises(UnsupportedError, match="no data"):
        Accelerator(cpu=True).save_model(empty(), tmp_path / "model")


def test_without_hooks(tmp_path: Path, trained: Net) -> None:
    path = save_as("sharded", trained, tmp_path)
    net = empty()

    weights = load_checkpoint_in_model(net, path, MAPS["a part"])

    assert isinstance(weights, OffloadedWeights)
    assert set(weights) == {"first.weight", "first.bias", "block.1.weight", "block.1.bias"}
    assert len(weights) == 4
    assert "embedding.weight" not in weights
    assert torch.equal(weights["first.bias"], trained.first.bias)
    accelerate.dispatch_model(net, MAPS["a part"], state_dict=weights, offload_index={})
    torch.testing.assert_close(net(TOKENS), trained(TOKENS), rtol=1e-6, atol=1e-6)


def test_modules_that_keep_float32(tmp_path: Path, trained: Net) -> None:
    path = save_as("sharded", trained, tmp_path)
    net = empty()

    load_checkpoint_in_model(
        net, path, {"": "cpu"}, dtype="torch.float16", keep_in_fp32_modules=["normal", "block.1"]
    )

    in_fp32 = {name for name, value in net.state_dict().items() if value.dtype == torch.float32}
    assert {name.rpartition(".")[0] for name in in_fp32} == {"normal", "block.1"}
    assert net.normal.num_batches_tracked.dtype == torch.int64


def test_a_model_that_has_memory_keeps_its_parameters(tmp_path: Path, trained: Net) -> None:
    path = save_as("sharded", trained, tmp_path)
    net = Net().eval()
    parameters = dict(net.named_parameters())

    load_checkpoint_and_dispatch(net, path)

    assert all(value is parameters[name] for name, value in net.named_parameters())
    assert torch.equal(net(TOKENS), trained(TOKENS))
    load_checkpoint_and_dispatch(net, path, MAPS["a part"])
    torch.testing.assert_close(net(TOKENS), trained(TOKENS), rtol=1e-6, atol=1e-6)
    assert net.first.weight.is_meta


def test_what_cannot_be_is_said_before_anything_is_loaded(tmp_path: Path, trained: Net) -> None:
    path = save_as("sharded", trained, tmp_path)
    net = empty()
    with pytest.raises(UnsupportedError, match="invalid"):
        load_checkpoint_and_dispatch(net, path, "best")
    with pytest.raises(UnsupportedError, match="names a module and a part of it"):
        load_checkpoint_and_dispatch(net, path, {"": "cpu", "block": "disk"})
    with pytest.raises(UnsupportedError, match="torch has no dtype"):
        load_checkpoint_and_dispatch(net, path, {"": "cpu"}, dtype="float17")
    with pytest.raises(UnsupportedError, match="broadcast_from_rank0=False"):
        load_checkpoint_and_dispatch(net, path, {"": "cpu"}, broadcast_from_rank0=True)
    with pytest.raises(ValueError, match="device_map"):
        load_checkpoint_and_dispatch(net, path, {"first": "cpu"})
    assert all(value.is_meta for value in net.parameters())


def test_hardly_more_memory_than_the_model(tmp_path: Path) -> None:
    done = forks.run(HERE / "memory_of_dispatch.py", tmp_path, modules=forks.ACCELERATE)
    assert done.returncode == 0, done.stderr
    peaks = json.loads(done.stdout)

    model = peaks["model"]
    assert peaks["cpu"] < model / 16, peaks  # it is mapped
    assert peaks["bfloat16"] < model / 2 + 2**24, peaks  # some buffers, and no second copy
    assert peaks["disk"] < model / 16, peaks
    assert peaks["disk, called"] < model / 16, peaks
    assert peaks["disk, bfloat16, called"] < model / 16, peaks

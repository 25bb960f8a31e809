"""Models and optimizers, spread by FSDP2 and tensor parallelism: saved one way, and gone on with another way."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.distributed.checkpoint.state_dict import get_model_state_dict, get_state_dict, set_state_dict
from torch.distributed.tensor import DTensor, Shard

import tensorkeep
import tensorkeep.torch
from tensorkeep.errors import TransportError
from tests.support.integrations.distributed.gloo_ranks import Killed, Ranks, load, save
from tests.support.integrations.distributed.parallel_models import WAYS, Net, losses, made, optimizer_of, world_of
from tests.support.integrations.distributed.placed_tensors import spread


def train_and_save(rank: int, way: str, path: str) -> tuple[list[float], list[float]]:
    model = made(way)
    optimizer = optimizer_of(model)
    before = losses(model, optimizer, 3)
    model_state, optimizer_state = get_state_dict(model, optimizer)
    save({"model": model_state, "optimizer": optimizer_state, "epoch": 3}, path)
    return before, losses(model, optimizer, 3)


def go_on(rank: int, way: str, path: str) -> list[float]:
    model = made(way, seed=1)
    optimizer = optimizer_of(model)
    model_state, optimizer_state = get_state_dict(model, optimizer)
    state = {"model": model_state, "optimizer": optimizer_state, "epoch": 0}
    load(state, path)
    assert state["epoch"] == 3
    set_state_dict(model, optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"])
    assert int(model.steps) == 3
    return losses(model, optimizer, 3)


@pytest.fixture(scope="module")
def alone() -> list[float]:
    """What one process would find."""
    torch.manual_seed(0)
    model = Net()
    return losses(model, optimizer_of(model), 6)


@pytest.mark.parametrize(
    ("way", "later"),
    [("fsdp4", "fsdp2"), ("fsdp_tp", "fsdp3"), ("hybrid", "fsdp_tp"), ("tp2", "fsdp1")],
)
def test_training_goes_on_where_it_stopped(
    ranks: Ranks, tmp_path: Path, alone: list[float], way: str, later: str
) -> None:
    path = str(tmp_path / "step-3")

    results = ranks.run(train_and_save, way, path, world=world_of(way))
    resumed = ranks.run(go_on, later, path, world=world_of(later))

    assert all(result == (alone[:3], alone[3:]) for result in results), results
    assert all(result == alone[3:] for result in resumed), (resumed, alone)
    assert tensorkeep.verify(path).findings == ()
    state = tensorkeep.load(path)
    assert state["model"]["head.weight"].data_ptr() == state["model"]["embed.weight"].data_ptr()
    plain = Net()
    plain.load_state_dict(state["model"])
    assert int(plain.steps) == 3


def whole_model() -> dict[str, torch.Tensor]:
    torch.manual_seed(5)
    return Net().state_dict()


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("whole") / "checkpoint"
    tensorkeep.save_checkpoint(whole_model(), path, max_shard_size=3000)
    return path


def fill(rank: int, way: str, device: str, path: str, options: dict[str, Any]) -> int:
    model = made(way, device=device, seed=1)
    report = tensorkeep.torch.load_sharded(model, path, **options)
    assert (report.missing, report.unexpected, report.left_on_meta) == ((), (), ())
    assert model.head.weight is model.embed.weight
    for name, tensor in get_model_state_dict(model).items():
        found = tensor.full_tensor() if isinstance(tensor, DTensor) else tensor
        assert found.equal(whole_model()[name]), name
    losses(model, optimizer_of(model), 1)  # FSDP2 still knows its parameters
    return report.nbytes


@pytest.mark.parametrize(
    ("way", "device"), [*((way, "meta") for way in WAYS), *((way, "cpu") for way in ("fsdp3", "fsdp_tp", "plain"))]
)
def test_a_spread_model_is_filled(ranks: Ranks, whole: Path, way: str, device: str) -> None:
    if (way, device) == ("plain", "cpu"):
        options: dict[str, Any] = {"strict": False}
    else:
        options = {}

    n_read = ranks.run(fill, way, device, str(whole), options, world=world_of(way))

    total = sum(tensor.nbytes for tensor in whole_model().values()) - whole_model()["head.weight"].nbytes
    if way in {"fsdp4", "fsdp2", "fsdp1"}:
        assert max(n_read) <= total / world_of(way) + 2000  # rows are not cut
        assert sum(n_read) == total + (world_of(way) - 1) * 8  # all have the buffer


@pytest.mark.parametrize("way", ["plain", "hybrid", "tp4"])
def test_what_ranks_have_alike_is_read_once_and_sent(ranks: Ranks, whole: Path, way: str) -> None:
    n_read = ranks.run(fill, way, "meta", str(whole), {"broadcast": True}, world=world_of(way))

    total = sum(tensor.nbytes for tensor in whole_model().values()) - whole_model()["head.weight"].nbytes
    assert sum(n_read) == total


def fill_and_die(rank: int, way: str, path: str, dying: int) -> str:
    def die(done: int, total: int) -> None:
        if rank == dying and 2 * done > total:
            os.kill(os.getpid(), signal.SIGKILL)

    with pytest.raises(TransportError) as raised:
        tensorkeep.torch.load_sharded(made(way, device="meta", seed=1), path, broadcast=True, progress=die)
    return str(raised.value)


@pytest.mark.parametrize(("way", "dying"), [("plain", 0), ("hybrid", 1)])
def test_ranks_do_not_wait_for_a_dead_one(ranks: Ranks, whole: Path, way: str, dying: int) -> None:
    ranks.start(fill_and_die, way, str(whole), dying, world=world_of(way), timeout_s=2)
    results = ranks.results()

    assert isinstance(results[dying], Killed)
    for rank, result in enumerate(results):
        assert rank == dying or "another rank ended, or cannot be reached" in result


def fill_wrong(rank: int, path: str, options: dict[str, Any]) -> str:
    model = made("fsdp4", device="meta")
    try:
        tensorkeep.torch.load_sharded(model, path, **options)
    except tensorkeep.errors.TensorkeepError as error:
        assert model.up.weight.is_meta
        return f"{type(error).__name__}: {error}"
    raise AssertionError("not refused")


def test_what_does_not_fit_a_spread_model_is_told_first(ranks: Ranks, tmp_path: Path) -> None:
    wrong = whole_model()
    del wrong["odd.bias"]
    wrong["norm.weight"] = torch.ones(3)
    wrong["extra"] = torch.ones(1)
    tensorkeep.save_checkpoint(wrong, tmp_path / "wrong")
    tensorkeep.save_checkpoint({"model": wrong}, tmp_path / "nested")

    for text in ranks.run(fill_wrong, str(tmp_path / "wrong"), {}):
        assert text.startswith("StateDictMismatchError")
        assert "1 missing: `odd.bias`" in text
        assert "1 unexpected: `extra`" in text
        assert "`norm.weight` [16] in the model, [3] in the checkpoint" in text
    for text in ranks.run(fill_wrong, str(tmp_path / "nested"), {}):
        assert "strip_prefix='model.'" in text


def fill_large(rank: int, path: str) -> tuple[int, int]:
    """Return how far the peak of memory rose, in bytes, and the bytes of this rank's part."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    with torch.device("meta"):
        model = torch.nn.Sequential(*(torch.nn.Linear(2048, 2048, bias=False) for _ in range(4)))
    fully_shard(model, mesh=init_device_mesh("cpu", (4,)))
    Path("/proc/self/clear_refs").write_text("5")
    before = _peak()
    report = tensorkeep.torch.load_sharded(model, path, broadcast=False)
    assert float(model[3].weight.to_local()[5, 7]) == (512 * rank + 5) * 3 + 7
    return _peak() - before, report.nbytes


def _peak() -> int:
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) * 1024


def test_no_rank_has_a_whole_tensor_in_memory(ranks: Ranks, tmp_path: Path) -> None:
    numbers = torch.arange(2048).reshape(-1, 1) * 3.0 + torch.arange(2048)
    tensorkeep.save_checkpoint({f"{layer}.weight": numbers + 0 for layer in range(4)}, tmp_path / "large")

    for rose, n_own in ranks.run(fill_large, str(tmp_path / "large")):
        assert n_own == 4 * numbers.nbytes // 4
        assert rose < n_own + numbers.nbytes // 2


def save_for_transformers(rank: int, path: str, weights: dict[str, torch.Tensor]) -> None:
    save({name: spread(tensor, (4,), [Shard(0)]) for name, tensor in weights.items()}, path, max_shard_size="20KB")


def test_transformers_loads_what_ranks_saved(ranks: Ranks, tmp_path: Path) -> None:
    from transformers import BertConfig, BertModel

    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
    model = BertModel(BertConfig(vocab_size=97, max_position_embeddings=31, **sizes))

    ranks.run(save_for_transformers, str(tmp_path / "bert"), dict(model.state_dict()))
    model.config.save_pretrained(tmp_path / "bert")

    loaded, info = BertModel.from_pretrained(tmp_path / "bert", output_loading_info=True)
    assert not info["missing_keys"]
    assert not info["unexpected_keys"]
    assert all(tensor.equal(model.state_dict()[name]) for name, tensor in loaded.state_dict().items())
    assert len(list((tmp_path / "bert").glob("model-*.safetensors"))) > 3

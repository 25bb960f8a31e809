"""Checkpoints to and from the libraries that made the layout, with their own functions, and every value equal."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import accelerate
import pytest
import safetensors
import torch
import transformers
from huggingface_hub import load_state_dict_from_file, load_torch_model, save_torch_model, save_torch_state_dict
from transformers import BertConfig, BertModel, GPT2Config, GPT2LMHeadModel

import tensorkeep

INDEX = "model.safetensors.index.json"
SHARD_SIZES = ["20KB", "1GB"]
State = dict[str, torch.Tensor]


def bert() -> BertModel:
    torch.manual_seed(0)
    return BertModel(
        BertConfig(vocab_size=64, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64)
    ).eval()


def tied_gpt2() -> GPT2LMHeadModel:
    torch.manual_seed(1)
    model = GPT2LMHeadModel(GPT2Config(vocab_size=64, n_positions=16, n_embd=32, n_layer=2, n_head=2)).eval()
    assert model.lm_head.weight.data_ptr() == model.transformer.wte.weight.data_ptr()
    return model


def untied(model: torch.nn.Module) -> State:
    """Return each tensor of the state dict once, by its first name."""
    once = {name for name, _ in (*model.named_parameters(), *model.named_buffers())}
    return {name: tensor for name, tensor in model.state_dict().items() if name in once}


def assert_equal(found: Any, expected: Any) -> None:
    found, expected = dict(found), dict(expected)
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        assert found[name].dtype == tensor.dtype, name
        assert torch.equal(found[name], tensor), name


def is_sharded(directory: Path) -> bool:
    return (directory / INDEX).exists()


@pytest.fixture(params=[bert, tied_gpt2], ids=["BERT", "GPT-2 with tied weights"])
def model(request: pytest.FixtureRequest) -> Any:
    return request.param()


@pytest.mark.parametrize("size", SHARD_SIZES)
def test_transformers_to_tensorkeep(model: Any, size: str, tmp_path: Path) -> None:
    model.save_pretrained(tmp_path, max_shard_size=size)

    assert is_sharded(tmp_path) == (size == "20KB")
    with tensorkeep.open(tmp_path, framework="torch") as tensors:
        assert_equal(tensors.load(), untied(model))
    found = tensorkeep.verify(tmp_path)
    assert not found.is_damaged
    assert found.n_unprotected == found.n_tensors == len(untied(model))


@pytest.mark.parametrize("size", SHARD_SIZES)
def test_tensorkeep_to_transformers(model: Any, size: str, tmp_path: Path) -> None:
    model.config.save_pretrained(tmp_path)
    tensorkeep.save_checkpoint(untied(model), tmp_path, max_shard_size=size)

    assert is_sharded(tmp_path) == (size == "20KB")
    again, report = type(model).from_pretrained(tmp_path, output_loading_info=True)
    assert_equal(again.state_dict(), model.state_dict())
    assert not any(report.values()), report
    if isinstance(model, GPT2LMHeadModel):
        assert again.lm_head.weight.data_ptr() == again.transformer.wte.weight.data_ptr()


@pytest.mark.parametrize("size", SHARD_SIZES)
def test_a_variant_to_and_from_transformers(model: Any, size: str, tmp_path: Path) -> None:
    halved = {name: tensor.half() if tensor.is_floating_point() else tensor for name, tensor in untied(model).items()}
    model.config.save_pretrained(tmp_path)
    tensorkeep.save_checkpoint(untied(model), tmp_path, max_shard_size=size)
    tensorkeep.save_checkpoint(halved, tmp_path, max_shard_size=size, variant="fp16")

    again = type(model).from_pretrained(tmp_path, variant="fp16", dtype=torch.float16)
    assert_equal({name: dict(again.state_dict())[name] for name in halved}, halved)
    main = type(model).from_pretrained(tmp_path)
    assert_equal(main.state_dict(), model.state_dict())

    theirs = tmp_path / "theirs"
    model.save_pretrained(theirs, max_shard_size=size)
    again.save_pretrained(theirs / "half", max_shard_size=size, variant="fp16")
    with tensorkeep.open(theirs / "half", framework="torch", variant="fp16") as tensors:
        assert_equal(tensors.load(), halved)
    names = {path.name for path in (theirs / "half").glob("*.safetensors*")}
    ours = {path.name for path in tmp_path.glob("*fp16*")}
    assert ours == names


def test_the_index_is_the_one_that_transformers_writes(model: Any, tmp_path: Path) -> None:
    model.save_pretrained(tmp_path / "theirs", max_shard_size="20KB")
    tensorkeep.save_checkpoint(untied(model), tmp_path / "ours", max_shard_size="20KB")
    theirs, ours = (json.loads((tmp_path / side / INDEX).read_text()) for side in ("theirs", "ours"))

    assert ours["weight_map"].keys() == theirs["weight_map"].keys()
    assert set(ours["weight_map"].values()) == set(theirs["weight_map"].values())
    del ours["metadata"]["tensorkeep"]
    assert ours["metadata"] == theirs["metadata"]


def test_a_save_over_one_of_transformers_leaves_nothing_of_it(model: Any, tmp_path: Path) -> None:
    model.save_pretrained(tmp_path, max_shard_size="20KB")
    others = {path.name for path in tmp_path.iterdir() if "safetensors" not in path.name}
    tensorkeep.save_checkpoint(untied(model), tmp_path)

    assert {path.name for path in tmp_path.iterdir()} == others | {"model.safetensors"}
    assert tensorkeep.verify(tmp_path).is_whole
    next(model.parameters()).data += 1
    model.save_pretrained(tmp_path, max_shard_size="20KB")
    assert (tmp_path / "model.safetensors").exists(), "transformers cleans up now; say so in docs/reliability.md"
    with pytest.raises(tensorkeep.TensorkeepError, match=f"model.safetensors is next to {INDEX}"):
        tensorkeep.open(tmp_path)


def test_transformers_saves_over_shards_of_tensorkeep(model: Any, tmp_path: Path) -> None:
    tensorkeep.save_checkpoint(untied(model), tmp_path, max_shard_size="10KB")
    model.save_pretrained(tmp_path, max_shard_size="20KB")

    with tensorkeep.open(tmp_path, framework="torch") as tensors:
        assert_equal(tensors.load(), untied(model))


@pytest.mark.parametrize("size", SHARD_SIZES)
def test_huggingface_hub_to_tensorkeep(model: Any, size: str, tmp_path: Path) -> None:
    save_torch_model(model, tmp_path, max_shard_size=size)

    assert is_sharded(tmp_path) == (size == "20KB")
    with tensorkeep.open(tmp_path, framework="torch") as tensors:
        found = tensors.load()
    names = untied(model).keys()
    dropped = dict(model.state_dict()).keys() - found.keys()
    assert len(found) == len(names)
    assert_equal(found, {name: tensor for name, tensor in model.state_dict().items() if name not in dropped})


@pytest.mark.parametrize("size", SHARD_SIZES)
def test_tensorkeep_to_huggingface_hub(size: str, tmp_path: Path) -> None:
    model, other = bert(), bert()
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.zero_()
    tensorkeep.save_checkpoint(dict(model.state_dict()), tmp_path, max_shard_size=size)

    load_torch_model(other, tmp_path, strict=True)
    assert_equal(other.state_dict(), model.state_dict())
    found: State = {}
    for path in tmp_path.glob("*.safetensors"):
        found |= load_state_dict_from_file(path)
    assert_equal(found, model.state_dict())


@pytest.mark.parametrize("size", SHARD_SIZES)
def test_huggingface_hub_and_tensorkeep_cut_at_the_same_places(size: str, tmp_path: Path) -> None:
    state = dict(bert().state_dict())
    (tmp_path / "theirs").mkdir()
    save_torch_state_dict(dict(state), tmp_path / "theirs", max_shard_size=size)
    tensorkeep.save_checkpoint(state, tmp_path / "ours", max_shard_size=size)

    names = sorted(path.name for path in (tmp_path / "theirs").iterdir())
    assert sorted(path.name for path in (tmp_path / "ours").iterdir()) == names
    for name in names:
        if name == INDEX:
            theirs, ours = (json.loads((tmp_path / side / INDEX).read_text()) for side in ("theirs", "ours"))
            assert ours["weight_map"] == theirs["weight_map"]
            continue
        assert (
            load_state_dict_from_file(tmp_path / "ours" / name).keys()
            == load_state_dict_from_file(tmp_path / "theirs" / name).keys()
        )


@pytest.mark.parametrize("size", SHARD_SIZES)
def test_tensorkeep_to_accelerate(size: str, tmp_path: Path) -> None:
    model, other = bert(), bert()
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.zero_()
    tensorkeep.save_checkpoint(dict(model.state_dict()), tmp_path, max_shard_size=size)

    accelerate.load_checkpoint_in_model(other, tmp_path, strict=True)
    assert_equal(other.state_dict(), model.state_dict())
    with accelerate.init_empty_weights():
        empty = BertModel(model.config)
    placed = accelerate.load_checkpoint_and_dispatch(empty, tmp_path, device_map={"": "cpu"})
    assert_equal(placed.state_dict(), model.state_dict())


@pytest.mark.parametrize("size", SHARD_SIZES)
def test_accelerate_to_tensorkeep(size: str, tmp_path: Path) -> None:
    model = bert()
    accelerate.Accelerator(cpu=True).save_model(model, str(tmp_path), max_shard_size=size)

    assert is_sharded(tmp_path) == (size == "20KB")
    with tensorkeep.open(tmp_path, framework="torch") as tensors:
        assert_equal(tensors.load(), model.state_dict())


def test_every_shard_is_a_file_for_safetensors(tmp_path: Path) -> None:
    state = dict(bert().state_dict())
    tensorkeep.save_checkpoint(state, tmp_path, max_shard_size="20KB", metadata={"step": "7"})

    found: State = {}
    for path in tmp_path.glob("*.safetensors"):
        with safetensors.safe_open(path, "pt") as file:
            metadata = file.metadata()
            assert (metadata["format"], metadata["step"]) == ("pt", "7")
            found |= {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a mapping
    assert_equal(found, state)


def test_shards_that_tensorkeep_wrote_survive_a_round_through_the_others(tmp_path: Path) -> None:
    model = bert()
    model.config.save_pretrained(tmp_path)
    tensorkeep.save_checkpoint(dict(model.state_dict()), tmp_path, max_shard_size="20KB")
    again = BertModel.from_pretrained(tmp_path)
    again.save_pretrained(tmp_path / "second", max_shard_size="15KB")
    with tensorkeep.open(tmp_path / "second", framework="torch") as tensors:
        tensorkeep.save_checkpoint(tensors, tmp_path / "third", max_shard_size="25KB")
    last = BertModel.from_pretrained(tmp_path / "third", config=model.config)

    assert_equal(last.state_dict(), model.state_dict())
    assert tensorkeep.verify(tmp_path / "third").is_whole
    assert transformers.__version__

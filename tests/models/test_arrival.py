"""What arrived: `coverage`, `load_into(report=True)` and `assert_loaded`, of tied and cast weights."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import tensorkeep
from tensorkeep.errors import NotLoadedError, StateDictMismatchError
from tensorkeep.torch import assert_loaded, coverage, load_into


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(20, 8)
        self.body = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8))
        self.head = nn.Linear(8, 20, bias=False)
        self.head.weight = self.embed.weight
        self.register_buffer("unsaved", torch.ones(3), persistent=False)


def state() -> dict[str, torch.Tensor]:
    torch.manual_seed(1)
    return {name: tensor.detach().clone() for name, tensor in Net().state_dict().items()}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    tensorkeep.save(state(), tmp_path / "net.safetensors")
    return tmp_path / "net.safetensors"


def test_each_tensor_has_a_fate(path: Path, tmp_path: Path) -> None:
    tensors = state()
    del tensors["body.0.bias"], tensors["body.1.num_batches_tracked"]
    tensors |= {"extra": torch.ones(5), "body.0.weight": torch.ones(3, 3)}
    tensorkeep.save({f"net.{name}": tensor for name, tensor in tensors.items()}, tmp_path / "other.safetensors")

    found = coverage(Net().half(), tmp_path / "other.safetensors", strip_prefix="net.")

    assert {each.tensor: each.fate for each in found.arrivals} == {
        "net.body.0.weight": "mismatched",
        "net.body.1.bias": "cast",
        "net.body.1.running_mean": "cast",
        "net.body.1.running_var": "cast",
        "net.body.1.weight": "cast",
        "net.embed.weight": "tied",
        "net.extra": "unused",
        "net.head.weight": "cast",
    }
    assert [each.names for each in found.unfilled] == [("body.0.weight",), ("body.0.bias",)]
    assert {each.becomes for each in found.arrivals if each.fate == "cast"} == {"F16"}
    assert (found.nbytes, found.nbytes_unused, found.nbytes_of_model, found.nbytes_unfilled) == (1464, 56, 536, 144)
    assert not found.is_complete
    assert "net.extra" in str(found)
    assert "net.extra" in found._repr_html_()
    assert repr(found).startswith("Coverage(96.2 % of 1.46 kB used, 2 tensors unused; 73.1 % of Net filled")
    found.require(used=0.9, filled=0.7)
    with pytest.raises(StateDictMismatchError, match="too little") as caught:
        found.require(used=0.9)
    assert (caught.value.missing, caught.value.unexpected) == (("body.0.weight", "body.0.bias"), ("net.extra",))


def test_a_load_reports_on_request(path: Path) -> None:
    net = Net()

    report = load_into(net, path, report=True)

    assert load_into(Net(), path).coverage is None
    assert report.coverage is not None
    assert report.coverage.is_complete
    assert report.coverage == coverage(net, path)
    with torch.device("meta"):
        assert coverage(Net(), path).is_complete


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float8_e4m3fn, torch.float64])
@pytest.mark.parametrize("form", ["digests", "none", "cast"])
def test_what_was_loaded_is_there(path: Path, tmp_path: Path, dtype: torch.dtype, form: str) -> None:
    if form == "none":
        tensorkeep.torch.save_file({name: each for name, each in state().items() if name != "head.weight"}, path)
    with tensorkeep.open(path) as opened:
        target = opened.cast("f16") if form == "cast" else path
        net = Net().to(dtype)
        load_into(net, target)
        net.embed.weight.data = net.embed.weight.data.t().contiguous().t()  # of other strides

        assert_loaded(net, target)

        with torch.no_grad():
            net.body[0].weight.view(-1)[5] = 7
            net.body[1].running_var[2] = torch.nan
        with pytest.raises(NotLoadedError, match=r"other values .* `body.0.weight`, `body.1.running_var`") as caught:
            assert_loaded(net, target)
    assert caught.value.differing == ("body.0.weight", "body.1.running_var")
    assert isinstance(caught.value, AssertionError)
    assert pickle.loads(pickle.dumps(caught.value)).differing == caught.value.differing


def test_nan_is_what_was_loaded(tmp_path: Path) -> None:
    tensorkeep.save({"weight": np.full((2, 2), np.nan, np.float32)}, tmp_path / "nan.safetensors")
    linear = nn.Linear(2, 2, bias=False).half()

    load_into(linear, tmp_path / "nan.safetensors")

    assert_loaded(linear, tmp_path / "nan.safetensors")


def test_a_model_without_data_has_nothing(path: Path) -> None:
    with torch.device("meta"):
        net = Net()

    with pytest.raises(NotLoadedError, match=r"no data \(device meta\) in `.* and 3 more\. .*assign=True"):
        assert_loaded(net, path)


def test_names_and_ties_must_fit(path: Path, tmp_path: Path) -> None:
    net = Net()
    tensors = state() | {"head.weight": torch.zeros(20, 8)}
    tensorkeep.save(tensors, tmp_path / "untied.safetensors")
    load_into(net, tmp_path / "untied.safetensors", strict=False)

    assert_loaded(net, tmp_path / "untied.safetensors", strict=False)
    with pytest.raises(StateDictMismatchError, match="ties"):
        assert_loaded(net, tmp_path / "untied.safetensors")
    with pytest.raises(StateDictMismatchError, match="missing"):
        assert_loaded(net.body, path)


class Counted(nn.Linear):
    def get_extra_state(self) -> torch.Tensor:
        return torch.tensor([self.n])

    def set_extra_state(self, state: torch.Tensor) -> None:
        self.n = int(state)

    n = 3


def test_extra_state_is_compared(tmp_path: Path) -> None:
    linear = Counted(2, 2)
    tensorkeep.save(linear.state_dict(), tmp_path / "c.safetensors")
    assert_loaded(linear, tmp_path / "c.safetensors")
    assert coverage(linear, tmp_path / "c.safetensors").is_complete

    linear.n = 4

    with pytest.raises(NotLoadedError, match="_extra_state"):
        assert_loaded(linear, tmp_path / "c.safetensors")


class Quantized(nn.Module):
    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self.up = nn.Linear(384, 256, dtype=dtype)


@pytest.fixture
def blocks(tmp_path: Path) -> Path:
    """Return a checkpoint in blocks of F8, with a bias that is not quantized."""
    tensors = {
        "up.weight": torch.randn(256, 384).to(torch.float8_e4m3fn),
        "up.weight_scale_inv": torch.rand(2, 3),
        "up.bias": torch.randn(256),
    }
    tensorkeep.save_checkpoint(tensors, tmp_path / "fp8")
    (tmp_path / "fp8" / "config.json").write_text('{"quantization_config": {"quant_method": "fp8"}}')
    return tmp_path / "fp8"


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("numbers", ["bf16", "f32"])
def test_numbers_of_quantized_tensors_are_there(blocks: Path, dtype: torch.dtype, numbers: str) -> None:
    model = Quantized(dtype)

    report = load_into(model, blocks, dequantize=numbers, report=True)

    assert_loaded(model, blocks, dequantize=numbers)
    assert report.coverage == coverage(model, blocks, dequantize=numbers)
    assert report.coverage is not None
    assert report.coverage.is_complete
    assert {each.tensor: each.dtype for each in report.coverage.arrivals} == {
        "up.bias": "F32",
        "up.weight": numbers.upper(),
    }
    expected = tensorkeep.load(blocks, dequantize=numbers, framework="torch")["up.weight"]
    assert model.up.weight.equal(expected.to(dtype))
    with torch.no_grad():
        model.up.weight[200, 7] += 1
    with pytest.raises(NotLoadedError) as caught:
        assert_loaded(model, blocks, dequantize=numbers)
    assert caught.value.differing == ("up.weight",)


def test_numbers_in_a_sharded_load(blocks: Path) -> None:
    model = Quantized(torch.bfloat16)

    tensorkeep.torch.load_sharded(model, blocks, dequantize="bf16")

    assert_loaded(model, blocks, dequantize="bf16")


def test_quantized_tensors_are_not_taken_for_numbers(blocks: Path) -> None:
    model = Quantized(torch.float32)

    with pytest.raises(StateDictMismatchError, match="weight_scale_inv"):
        assert_loaded(model, blocks)
    with tensorkeep.open(blocks) as opened:
        load_into(model, opened, dequantize="bf16", strip_prefix="")
        assert_loaded(model, opened, dequantize="bf16", key_map={})
    assert [each.tensor for each in coverage(model, blocks).unused] == ["up.weight_scale_inv"]

"""Loaders for vLLM and SGLang, with stand-ins for what they use of these: the engines need a GPU's libraries."""

from __future__ import annotations

import dataclasses
import enum
import importlib
import sys
import threading
import tomllib
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import tensorkeep
from tensorkeep.errors import IntegrityError, UnsupportedError
from tensorkeep.integrations.vllm import register
from tensorkeep.models import ServedWeights
from tensorkeep.tensors import LazyTensor
from tests.support.engines import vllm_stand_in as vllm
from tests.support.engines.parallel_model import ParallelModel, saved_weights

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model")
    tensorkeep.save_checkpoint(saved_weights(), path, max_shard_size="4MB")
    return path


@pytest.fixture(params=["0.11", "0.33"])
def loader_class(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    loaders = vllm.install(monkeypatch, request.param)
    register()
    return loaders["tensorkeep"]


@pytest.mark.parametrize("options", [{}, {"verify": True}, {"host_budget": 2**21, "n_threads": 2}])
def test_vllm_fills_a_rank(loader_class: Any, directory: Path, options: dict[str, Any]) -> None:
    config = vllm.LoadConfig(load_format="tensorkeep", model_loader_extra_config=options)
    loader, model = loader_class(config), ParallelModel(1, 2)

    loader.download_model(vllm.ModelConfig(str(directory)))
    loader.load_weights(model, vllm.ModelConfig(str(directory)))

    assert model.is_loaded(saved_weights())
    assert config.load_format == "tensorkeep"
    assert loader.counter_before_loading_weights > 0  # vLLM logs the seconds since


def test_vllm_reads_pickles_and_secondary_weights(loader_class: Any, tmp_path: Path, directory: Path) -> None:
    torch.save({"norm": saved_weights()["norm"]}, tmp_path / "pytorch_model.bin")
    model: Any = ParallelModel(0, 1)
    model.secondary_weights = [loader_class.Source(str(tmp_path), None, prefix="")]

    loader_class(vllm.LoadConfig()).load_weights(model, vllm.ModelConfig(str(directory)))

    assert model.is_loaded(saved_weights())


def test_missing_weights_damage_and_unknown_options_are_errors(loader_class: Any, tmp_path: Path) -> None:
    weights = saved_weights()
    path = tmp_path / "model.safetensors"
    tensorkeep.save({name: weights[name] for name in ("q", "norm")}, path)
    with pytest.raises(ValueError, match="not initialized"):
        loader_class(vllm.LoadConfig()).load_weights(ParallelModel(0, 1), vllm.ModelConfig(str(tmp_path)))
    data = bytearray(path.read_bytes())
    data[-3] ^= 1
    path.write_bytes(data)
    verifying = loader_class(vllm.LoadConfig(model_loader_extra_config={"verify": True}))
    with pytest.raises(IntegrityError):
        verifying.load_weights(ParallelModel(0, 1), vllm.ModelConfig(str(tmp_path)))
    with pytest.raises(ValueError, match="'threads'"):
        loader_class(vllm.LoadConfig(model_loader_extra_config={"threads": 3}))


def test_vllm_is_left_to_put_tensors_of_torchao_together(loader_class: Any, directory: Path) -> None:
    config = vllm.ModelConfig(str(directory), quantization="torchao")
    with pytest.raises(UnsupportedError, match='load_format="auto"'):
        loader_class(vllm.LoadConfig()).load_weights(ParallelModel(0, 1), config)


def test_the_next_tensor_is_verified_while_the_engine_uses_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tensorkeep.save({f"{n}": torch.full((3,), float(n)) for n in range(4)}, tmp_path / "model.safetensors")
    begun = [threading.Event() for _ in range(4)]
    load = LazyTensor.load

    def noted(self: LazyTensor[Any]) -> Any:
        begun[int(self.name)].set()
        return load(self)

    monkeypatch.setattr(LazyTensor, "load", noted)
    weights = ServedWeights({"verify": True}).of([str(tmp_path / "model.safetensors")])

    for n, (name, tensor) in enumerate(weights):
        assert name == f"{n}"
        assert tensor.equal(torch.full((3,), float(n)))
        assert n == 3 or begun[n + 1].wait(60)


def test_vllm_finds_the_plug_in() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    module, _, function = project["entry-points"]["vllm.general_plugins"]["tensorkeep"].partition(":")

    assert getattr(importlib.import_module(module), function) is register


class LoadFormat(enum.StrEnum):
    AUTO = "auto"


class SglangLoader:
    """SGLang 0.5.23's `DefaultModelLoader`: names, arguments and results."""

    counter_before_loading_weights: float = 0.0

    @dataclasses.dataclass
    class Source:
        model_or_path: str
        revision: str | None
        prefix: str = ""
        fall_back_to_pt: bool = True
        allow_patterns_overrides: list[str] | None = None
        model_config: Any = None

    def __init__(self, load_config: Any) -> None:
        assert load_config.load_format is LoadFormat.AUTO
        assert load_config.model_loader_extra_config == {}
        self.load_config = load_config

    def _prepare_weights(
        self, model_name_or_path: str, revision: str | None, fall_back_to_pt: bool, allow_patterns_overrides: Any
    ) -> tuple[str, list[str], bool]:
        files = Path(model_name_or_path).glob("model*.safetensors")
        return model_name_or_path, [str(path) for path in files], True

    def _get_weights_iterator(self, source: Any, **_: Any) -> Any:
        raise AssertionError("SGLang would read the files")

    @classmethod
    def _filter_mtp_weights(cls, weights_iterator: Any, prefix: str, draft_model_idx: int) -> Any:
        for name, tensor in weights_iterator:
            if not name.startswith("mtp.") or name.startswith(f"mtp.{draft_model_idx}."):
                yield prefix + name.replace(f"mtp.{draft_model_idx}.", "mtp.0."), tensor

    def load_model(self, *, model_config: Any, device_config: Any) -> Any:
        model = ParallelModel(0, 2)
        source = self.Source(model_config.model_path, None, model_config=model_config)
        files = self._prepare_weights(source.model_or_path, None, True, None)[1]
        resolved = types.SimpleNamespace(weight_files=tuple(files)) if device_config is None else None
        model.load_weights(self._get_weights_iterator(source, resolved_source=resolved))
        return model


def maybe_add_mtp_safetensors(files: list[str], folder: str, index_file: str, hf_config: Any) -> list[str]:
    """SGLang's: the name is fixed, and the index does not have it."""
    return [*files, f"{folder}/mtp.safetensors"] if hf_config.num_nextn_predict_layers else files


@pytest.fixture
def sglang_loader(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    contents: dict[str, dict[str, Any]] = {
        "sglang": {},
        "sglang.srt": {},
        "sglang.srt.configs": {},
        "sglang.srt.model_loader": {},
        "sglang.srt.configs.load_config": {"LoadFormat": LoadFormat},
        "sglang.srt.model_loader.loader": {"DefaultModelLoader": SglangLoader},
        "sglang.srt.model_loader.weight_utils": {"maybe_add_mtp_safetensors": maybe_add_mtp_safetensors},
    }
    for name, attributes in contents.items():
        module = types.ModuleType(name)
        module.__path__ = []
        vars(module).update(attributes)
        monkeypatch.setitem(sys.modules, name, module)
    yield importlib.import_module("tensorkeep.integrations.sglang").TensorkeepModelLoader
    for name in ("tensorkeep.integrations.sglang", "tensorkeep.integrations.sglang._loader"):
        sys.modules.pop(name, None)


def sglang_config(loader: Any, draft_model_idx: int | None = None) -> Any:
    options = {"n_threads": 2}
    return types.SimpleNamespace(
        load_format=loader, model_loader_extra_config=options, draft_model_idx=draft_model_idx
    )


def sglang_model(directory: Path, n_mtp_layers: int = 0) -> Any:
    config = types.SimpleNamespace(num_nextn_predict_layers=n_mtp_layers)
    return types.SimpleNamespace(model_path=str(directory), hf_config=config)


@pytest.mark.parametrize("device_config", [None, "cpu"])
def test_sglang_fills_a_rank(sglang_loader: Any, directory: Path, device_config: Any) -> None:
    config = sglang_config(sglang_loader)
    loader = sglang_loader(config)

    model = loader.load_model(model_config=sglang_model(directory), device_config=device_config)

    assert model.is_loaded(saved_weights())
    assert config.load_format is sglang_loader
    assert loader.counter_before_loading_weights > 0


def test_sglang_gets_the_layers_that_draft(sglang_loader: Any, tmp_path: Path) -> None:
    """From a file that the index lacks, and only the layer of this drafting model, by the name of the first."""
    values = {f"mtp.{n}.weight": torch.full((3,), float(n)) for n in range(3)}
    tensorkeep.torch.save_file({"norm": torch.ones(5)}, tmp_path / "model.safetensors")
    tensorkeep.torch.save_file(values, tmp_path / "mtp.safetensors")
    source = sglang_loader.Source(str(tmp_path), None, "draft.", model_config=sglang_model(tmp_path, 3))

    found = dict(sglang_loader(sglang_config(sglang_loader, 2))._get_weights_iterator(source))
    everything = dict(sglang_loader(sglang_config(sglang_loader))._get_weights_iterator(source))

    assert found.keys() == {"draft.norm", "draft.mtp.0.weight"}
    assert found["draft.mtp.0.weight"].equal(values["mtp.2.weight"])
    assert everything.keys() == {"draft.norm", *(f"draft.{name}" for name in values)}

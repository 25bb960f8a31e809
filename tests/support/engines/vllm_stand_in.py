"""What tensorkeep uses of vLLM, with the signatures of its source: of version 0.11, or 0.33 where that differs.

vLLM itself needs a GPU's libraries. Names, arguments and what is returned are vLLM's; the code is not.
"""

from __future__ import annotations

import dataclasses
import glob
import os
import sys
import types
from abc import ABC, abstractmethod
from collections.abc import Generator
from typing import Any

import pytest
import torch


@dataclasses.dataclass
class LoadConfig:
    load_format: str = "auto"
    download_dir: str | None = None
    model_loader_extra_config: Any = dataclasses.field(default_factory=dict)
    ignore_patterns: Any = None
    use_tqdm_on_load: bool = True
    safetensors_load_strategy: str = "lazy"


@dataclasses.dataclass
class ModelConfig:
    model: str
    revision: str | None = None
    quantization: str | None = None


class BaseModelLoader(ABC):
    def __init__(self, load_config: LoadConfig) -> None:
        self.load_config = load_config

    @abstractmethod
    def download_model(self, model_config: ModelConfig) -> None: ...

    @abstractmethod
    def load_weights(self, model: Any, model_config: ModelConfig) -> None: ...


class _DefaultModelLoader(BaseModelLoader):
    counter_before_loading_weights: float = 0.0

    def __init__(self, load_config: LoadConfig) -> None:
        super().__init__(load_config)
        unexpected = set(load_config.model_loader_extra_config) - {"enable_multithread_load", "num_threads"}
        if unexpected:
            raise ValueError(f"Unexpected extra config keys for load format {load_config.load_format}: {unexpected}")

    def _files(self, folder: str, overrides: list[str] | None) -> tuple[str, list[str], bool]:
        if self.load_config.load_format != "auto":
            raise ValueError(f"Unknown load_format: {self.load_config.load_format}")
        for pattern in overrides or ["*.safetensors", "*.bin"]:
            files = glob.glob(os.path.join(folder, pattern))
            if files:
                return folder, files, pattern == "*.safetensors"
        raise RuntimeError(f"Cannot find any model weights with `{folder}`")

    def _get_weights_iterator(self, source: Any) -> Generator[tuple[str, torch.Tensor], None, None]:
        raise AssertionError("vLLM would read the files")

    def get_all_weights(
        self, model_config: ModelConfig, model: Any
    ) -> Generator[tuple[str, torch.Tensor], None, None]:
        source = self.Source(  # type: ignore[attr-defined]
            model_config.model,
            model_config.revision,
            prefix="",
            fall_back_to_pt=getattr(model, "fall_back_to_pt_during_load", True),
            allow_patterns_overrides=getattr(model, "allow_patterns_overrides", None),
        )
        yield from self._get_weights_iterator(source)
        for source in getattr(model, "secondary_weights", ()):
            yield from self._get_weights_iterator(source)

    def load_weights(self, model: Any, model_config: ModelConfig) -> None:
        if model_config.quantization == "torchao":
            self.load_config.safetensors_load_strategy = "torchao"
        wanted = {name for name, _ in model.named_parameters()}
        loaded = model.load_weights(self.get_all_weights(model_config, model))
        if model_config.quantization is None and loaded is not None and wanted - loaded:
            raise ValueError(f"Following weights were not initialized from checkpoint: {wanted - loaded}")


class DefaultModelLoader11(_DefaultModelLoader):
    @dataclasses.dataclass
    class Source:
        model_or_path: str
        revision: str | None
        prefix: str = ""
        fall_back_to_pt: bool = True
        allow_patterns_overrides: list[str] | None = None

    def _prepare_weights(
        self,
        model_name_or_path: str,
        revision: str | None,
        fall_back_to_pt: bool,
        allow_patterns_overrides: list[str] | None,
    ) -> tuple[str, list[str], bool]:
        return self._files(model_name_or_path, allow_patterns_overrides)

    def download_model(self, model_config: ModelConfig) -> None:
        self._prepare_weights(
            model_config.model, model_config.revision, fall_back_to_pt=True, allow_patterns_overrides=None
        )


class DefaultModelLoader33(_DefaultModelLoader):
    @dataclasses.dataclass
    class Source:
        model_or_path: str
        revision: str | None
        subfolder: str | None = None
        prefix: str = ""
        fall_back_to_pt: bool = True
        allow_patterns_overrides: list[str] | None = None
        is_unused_weight: Any = None

    def _prepare_weights(
        self,
        model_name_or_path: str,
        subfolder: str | None,
        revision: str | None,
        fall_back_to_pt: bool,
        allow_patterns_overrides: list[str] | None,
    ) -> tuple[str, list[str], bool, str]:
        folder = os.path.join(model_name_or_path, subfolder or "")
        return *self._files(folder, allow_patterns_overrides), "model.safetensors.index.json"

    def download_model(self, model_config: ModelConfig) -> None:
        self._prepare_weights(model_config.model, None, model_config.revision, True, None)


def install(monkeypatch: pytest.MonkeyPatch, version: str) -> dict[str, type[BaseModelLoader]]:
    """Make `import vllm` find this; return the table of load formats."""
    loaders: dict[str, type[BaseModelLoader]] = {}

    def register_model_loader(load_format: str) -> Any:
        def wrapper(loader: type[BaseModelLoader]) -> type[BaseModelLoader]:
            assert issubclass(loader, BaseModelLoader)
            loaders[load_format] = loader
            return loader

        return wrapper

    default = {"0.11": DefaultModelLoader11, "0.33": DefaultModelLoader33}[version]
    contents: dict[str, dict[str, Any]] = {
        "vllm": {},
        "vllm.model_executor": {},
        "vllm.model_executor.model_loader": {"register_model_loader": register_model_loader},
        "vllm.model_executor.model_loader.default_loader": {"DefaultModelLoader": default},
    }
    for name, attributes in contents.items():
        module = types.ModuleType(name)
        module.__path__ = []
        vars(module).update(attributes)
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.delitem(sys.modules, "tensorkeep.integrations.vllm._loader", raising=False)
    return loaders

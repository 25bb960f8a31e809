"""The loader: vLLM's own, except that tensors are read by tensorkeep."""

from __future__ import annotations

import copy
import time
from collections.abc import Iterator
from typing import Any

import torch
from vllm.model_executor.model_loader import register_model_loader
from vllm.model_executor.model_loader.default_loader import DefaultModelLoader

from tensorkeep.errors import UnsupportedError
from tensorkeep.models import ServedWeights


@register_model_loader("tensorkeep")
class TensorkeepModelLoader(DefaultModelLoader):
    """Reads what each layer takes of a tensor, straight into its parameter.

    `model_loader_extra_config` may have `host_budget` and `n_threads`, as `tensorkeep.staging` takes them, and
    `verify`: whether to read whole tensors and compare them with their digests.
    """

    counter_before_loading_weights: float

    def __init__(self, load_config: Any) -> None:
        self._weights = ServedWeights(load_config.model_loader_extra_config)
        plain = copy.copy(load_config)  # for vLLM, which finds the files
        plain.load_format, plain.model_loader_extra_config = "auto", {}
        super().__init__(plain)

    def _get_weights_iterator(self, source: Any) -> Iterator[tuple[str, torch.Tensor]]:
        if self.load_config.safetensors_load_strategy == "torchao":  # vLLM has found what `quantization` says
            raise UnsupportedError(
                "tensorkeep does not put tensors of torchao together for vLLM",
                path=source.model_or_path,
                hint='Use vLLM\'s own loader: load_format="auto"',
            )
        options = {"subfolder": source.subfolder} if hasattr(source, "subfolder") else {}
        found = self._prepare_weights(
            model_name_or_path=source.model_or_path,
            revision=source.revision,
            fall_back_to_pt=source.fall_back_to_pt,
            allow_patterns_overrides=source.allow_patterns_overrides,
            **options,
        )
        if self.counter_before_loading_weights == 0.0:  # vLLM logs the seconds since
            self.counter_before_loading_weights = time.perf_counter()
        return ((source.prefix + name, tensor) for name, tensor in self._weights.of(found[1]))

    def load_weights(self, model: torch.nn.Module, model_config: Any) -> None:
        """Load the weights of a model."""
        with self._weights.staging():
            super().load_weights(model, model_config)

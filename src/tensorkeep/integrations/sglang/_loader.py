"""The loader: SGLang's own, except that tensors are read by tensorkeep."""

from __future__ import annotations

import copy
import time
from collections.abc import Iterator
from typing import Any

import torch
from sglang.srt.configs.load_config import LoadFormat
from sglang.srt.model_loader.loader import DefaultModelLoader
from sglang.srt.model_loader.weight_utils import maybe_add_mtp_safetensors

from tensorkeep.models import ServedWeights


class TensorkeepModelLoader(DefaultModelLoader):
    """Reads what each layer takes of a tensor, straight into its parameter.

        engine = sglang.Engine(model_path="model", load_format=TensorkeepModelLoader)

    `model_loader_extra_config` may have `host_budget` and `n_threads`, as `tensorkeep.staging` takes them, and
    `verify`: whether to read whole tensors and compare them with their digests.
    """

    counter_before_loading_weights: float

    def __init__(self, load_config: Any) -> None:
        self._weights = ServedWeights(load_config.model_loader_extra_config)
        plain = copy.copy(load_config)  # for SGLang, which finds the files
        plain.load_format, plain.model_loader_extra_config = LoadFormat.AUTO, {}
        super().__init__(plain)

    def _get_weights_iterator(
        self, source: Any, *, resolved_source: Any = None, **_: Any
    ) -> Iterator[tuple[str, torch.Tensor]]:
        if resolved_source is None:
            folder, files, is_safetensors = self._prepare_weights(
                source.model_or_path, source.revision, source.fall_back_to_pt, source.allow_patterns_overrides
            )
            if is_safetensors and source.model_config is not None:
                files = maybe_add_mtp_safetensors(
                    files, folder, "model.safetensors.index.json", source.model_config.hf_config
                )
        else:
            files = resolved_source.weight_files
        weights = self._weights.of(files)
        if self.load_config.draft_model_idx is not None:  # a model that drafts tokens takes one of several layers
            found: Iterator[tuple[str, torch.Tensor]] = self._filter_mtp_weights(
                weights, source.prefix, self.load_config.draft_model_idx
            )
            return found
        if self.counter_before_loading_weights == 0.0:
            self.counter_before_loading_weights = time.perf_counter()
        return ((source.prefix + name, tensor) for name, tensor in weights)

    def load_model(self, **configs: Any) -> torch.nn.Module:
        """Create a model, and load its weights."""
        with self._weights.staging():
            model: torch.nn.Module = super().load_model(**configs)
            return model

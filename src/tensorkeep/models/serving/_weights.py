"""The weights of a list of files, with the options of an inference engine."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from typing import Any, Final

import torch

from tensorkeep.checkpoint import open_checkpoint
from tensorkeep.models.serving._deferred import deferred_tensors
from tensorkeep.parallel import read_ahead
from tensorkeep.tensors import LazyTensor, staging

_STAGING: Final = ("host_budget", "n_threads")
"""Options that `staging` takes."""


class ServedWeights:
    """Reads files as an engine's `model_loader_extra_config` says."""

    def __init__(self, options: Mapping[str, Any] | None) -> None:
        given = dict(options or {})
        self._verify = bool(given.pop("verify", False))
        self._staging = {name: given.pop(name) for name in _STAGING if name in given}
        if given:
            raise ValueError(
                f"model_loader_extra_config has {', '.join(map(repr, given))}; "
                f"tensorkeep knows 'verify', {', '.join(map(repr, _STAGING))}"
            )

    def staging(self) -> AbstractContextManager[None]:
        """Set what loads may use, in a block."""
        return staging(**self._staging)

    def of(self, files: Iterable[str]) -> Iterator[tuple[str, torch.Tensor]]:
        """Yield the tensors of files with their names, each valid for as long as it is held."""
        for file in files:
            # It stays open for as long as any of its tensors is used
            opened = open_checkpoint(file, framework="torch", verify=self._verify)
            if self._verify:
                # The next tensor is read and hashed while the engine copies one
                yield from zip(opened, read_ahead(LazyTensor.load, opened.values(), 1), strict=True)
            else:
                yield from deferred_tensors(opened)

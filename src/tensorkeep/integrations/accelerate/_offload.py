"""Weights that stay in the checkpoint on the disk until a module needs them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from accelerate.hooks import SequentialHook
from torch import nn

from tensorkeep.digests import digest_of
from tensorkeep.errors import IntegrityError, UnsupportedError
from tensorkeep.tensors import LazyTensor
from tensorkeep.training import capture


class OffloadedWeights(Mapping[str, torch.Tensor]):
    """A read-only mapping of name to weight that stays in the checkpoint: each access reads the tensor again.

    Args:
        tensors: Name in the model to lazy tensor.
        dtypes: Dtypes of tensors that the model has in another dtype than the checkpoint.
        verify: Whether to check a tensor against its digest each time it is read.
    """

    def __init__(
        self,
        tensors: Mapping[str, LazyTensor],
        dtypes: Mapping[str, torch.dtype] | None = None,
        *,
        verify: bool = False,
    ) -> None:
        self._tensors = {name: _in_torch(lazy) for name, lazy in tensors.items()}
        self._dtypes = dict(dtypes or {})
        self._verify = verify

    def __getitem__(self, name: str) -> torch.Tensor:
        """Read a tensor."""
        lazy = self._tensors[name]
        tensor: torch.Tensor = lazy.load()
        if self._verify and lazy.digest is not None and lazy.digest != _digest(tensor):
            raise IntegrityError(
                f"the bytes of `{name}` are not those that were saved",
                tensor=name,
                hint="Get the checkpoint again; `tensorkeep verify` lists everything that is damaged",
            )
        return tensor.to(self._dtypes.get(name, tensor.dtype))

    def __contains__(self, name: object) -> bool:
        return name in self._tensors

    def __iter__(self) -> Iterator[str]:
        return iter(self._tensors)

    def __len__(self) -> int:
        return len(self._tensors)

    def __repr__(self) -> str:
        nbytes = sum(lazy.nbytes for lazy in self._tensors.values())
        return f"OffloadedWeights({len(self):,} tensors, {nbytes:,} bytes)"


def _in_torch(lazy: LazyTensor) -> LazyTensor:
    return LazyTensor(lazy.name, lazy.entry, lazy.reader.with_framework("torch"), lazy.digest)


def _digest(tensor: torch.Tensor) -> bytes:
    return digest_of(tensor.reshape(-1).view(torch.uint8).numpy().data)


def whole_state(model: nn.Module) -> dict[str, Any]:
    """Return the state dict of a model, including weights that are offloaded between calls of its modules."""
    state: dict[str, Any] = capture(model=model, rng=False)["model"]
    absent = [name for name, value in state.items() if isinstance(value, torch.Tensor) and value.is_meta]
    return state | {name: _offloaded(model, name) for name in absent}


def _offloaded(model: nn.Module, name: str) -> torch.Tensor:
    owner, _, key = name.rpartition(".")
    while (weights := _weights_map(model.get_submodule(owner))) is None:
        if not owner:
            raise UnsupportedError(f"`{name}` of the model has no data (device meta)", tensor=name)
        owner, _, part = owner.rpartition(".")
        key = f"{part}.{key}"
    weight: torch.Tensor = weights[key]
    return weight


def _weights_map(module: nn.Module) -> Mapping[str, torch.Tensor] | None:
    """Return the mapping from which a module's hook takes the weights of the module and its submodules."""
    hook = getattr(module, "_hf_hook", None)
    hooks = hook.hooks if isinstance(hook, SequentialHook) else (hook,)
    maps = (getattr(hook, "weights_map", None) for hook in hooks)
    return next((weights for weights in maps if weights is not None), None)

"""Which tensors of an adapter belong together, and what they change in the base model. Pure."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from tensorkeep.errors import TensorNotFoundError
from tensorkeep.merging.lora._settings import LoraSettings, ends_with
from tensorkeep.texts import counted, listed

_PREFIX = "base_model.model."
_ENDS = {
    ".lora_A.weight": ("weight", "a"),
    ".lora_B.weight": ("weight", "b"),
    ".lora_embedding_A": ("weight", "a"),
    ".lora_embedding_B": ("weight", "b"),
    ".lora_magnitude_vector": ("weight", "magnitude"),
    ".lora_magnitude_vector.weight": ("weight", "magnitude"),
    ".lora_B.bias": ("bias", "bias"),
}
"""The end of an adapter's name: the parameter of the layer that it changes, and its part in that."""


class Change(msgspec.Struct, kw_only=True):
    """What an adapter does to one tensor of the base model: names of the adapter's tensors.

    Attributes:
        layer: The layer's name.
        a: The factor with the rows of the rank, (rank, inputs).
        b: The factor with the columns of the rank, (outputs, rank).
        magnitude: The norms of DoRA.
        bias: What is added to a bias.
        whole: What replaces the tensor, before anything is added.
        is_embedding: Whether the layer is an embedding.
    """

    layer: str
    a: str | None = None
    b: str | None = None
    magnitude: str | None = None
    bias: str | None = None
    whole: str | None = None
    is_embedding: bool = False


def changes_of(adapter: Iterable[str], base: Iterable[str], settings: LoraSettings, path: str) -> dict[str, Change]:
    """Return the name of each tensor of the result that an adapter changes, and how; no name may be left over."""
    known = _Known(base)
    changes: dict[str, Change] = {}
    lost = []
    for name in adapter:
        own = name.removeprefix(_PREFIX).replace(".base_layer.", ".")
        end = next((end for end in _ENDS if own.endswith(end)), None)
        parameter, part = _ENDS[end] if end else ("", "whole")
        layer = own.removesuffix(end) if end else own.rpartition(".")[0]
        wanted = f"{layer}.{parameter}" if end else own
        target = known.find(wanted) or (own if part == "whole" and settings.is_saved(own) else None)
        if target is None:
            lost.append(name)
            continue
        change = changes.setdefault(target, Change(layer=layer))
        if change.layer != layer or getattr(change, part) is not None:
            lost.append(name)  # two names for one part
            continue
        setattr(change, part, name)
        change.is_embedding |= "embedding" in (end or "")
    for change in changes.values():
        lost += _without_use(change, settings)
    if lost:
        raise TensorNotFoundError(
            f"{counted(len(lost), 'tensor')} of the adapter would be lost",
            path=path,
            expected="peft's names of layers in the base model",
            found=listed(f"`{name}`" for name in lost),
            hint="The adapter may belong to another model, or be neither LoRA nor DoRA",
        )
    return changes


class _Known:
    """Names of the base model, found also where one side has a prefix such as `model.` or `transformer.`."""

    def __init__(self, names: Iterable[str]) -> None:
        self._names = dict.fromkeys(names)
        self._by_last: dict[str, list[str]] = {}
        for name in self._names:
            self._by_last.setdefault(".".join(name.split(".")[-2:]), []).append(name)

    def find(self, wanted: str) -> str | None:
        if wanted in self._names:
            return wanted
        near = self._by_last.get(".".join(wanted.split(".")[-2:]), [])
        found = [name for name in near if ends_with(wanted, name) or ends_with(name, wanted)]
        return found[0] if len(found) == 1 else None


def _without_use(change: Change, settings: LoraSettings) -> list[str]:
    """Return what an adapter has of a change that lacks a part, or that something else takes the place of."""
    product = [part for part in (change.a, change.b, change.magnitude) if part is not None]
    if change.whole is not None and ".base_layer." not in change.whole:
        return product
    n_parts = 3 if settings.use_dora and product else 2
    return product if product and (len(product) != n_parts or change.a is None or change.b is None) else []

"""Which weights are (inputs, outputs), as in GPT-2, rather than (outputs, inputs). Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property

from tensorkeep.errors import RefusedError
from tensorkeep.tensors import LazyTensor


class Orientations:
    """How the square weights of a base model are stored, which their shapes do not say.

    peft saves one setting, `fan_in_fan_out`, which is right for the last adapted layer only. So weights of the model
    with biases, which have the length of the outputs, must agree with it; those of layers with the same last name
    decide.
    """

    def __init__(self, base: Mapping[str, LazyTensor], setting: bool) -> None:
        self._base = base
        self._setting = setting

    def is_turned(self, name: str) -> bool:
        """Say whether a square weight is (inputs, outputs)."""
        of_layer = {turned for kind, turned in self._seen if kind == _kind(name)}
        of_model = {turned for _, turned in self._seen} | {self._setting}
        for found in (of_layer, of_model):
            if len(found) == 1:
                return found.pop()
        raise RefusedError(
            f"nothing says whether tensor `{name}` is transposed, as in GPT-2",
            tensor=name,
            expected="fan_in_fan_out for a model whose layers are all of one kind",
            found="layers of both kinds",
            hint="Merge the adapter with peft",
        )

    @cached_property
    def _seen(self) -> frozenset[tuple[str, bool]]:
        return frozenset(self._with_bias())

    def _with_bias(self) -> Iterator[tuple[str, bool]]:
        for name, weight in self._base.items():
            layer, _, parameter = name.rpartition(".")
            bias = self._base.get(f"{layer}.bias") if parameter == "weight" and weight.ndim == 2 else None
            if bias is not None and bias.ndim == 1 and len(set(weight.shape)) == 2 and bias.shape[0] in weight.shape:
                yield _kind(name), bias.shape[0] == weight.shape[1]


def _kind(name: str) -> str:
    """Return the last part of a layer's name."""
    return name.split(".")[-2] if "." in name else name

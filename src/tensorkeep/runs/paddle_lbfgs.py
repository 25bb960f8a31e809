"""The LBFGS of Paddle (imports Paddle): its state is vectors over all parameters, the last steps, and numbers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from math import prod
from typing import Any, Final

from tensorkeep.arrays import convert_to
from tensorkeep.errors import StateDictMismatchError
from tensorkeep.runs._actions import Action
from tensorkeep.runs._slots import as_array
from tensorkeep.texts import listed

_COUNTS: Final = ("func_evals", "n_iter")
_VECTORS: Final = ("d", "prev_flat_grad")
_NUMBERS: Final = ("alpha", "H_diag", "prev_loss")
_HISTORIES: Final = ("old_yk", "old_sk")
_SCALES: Final = "ro"
_KEPT: Final = (*_COUNTS, *_VECTORS, *_NUMBERS, *_HISTORIES, _SCALES)
"""What is kept from step to step. `al`, which each step fills before it reads it, is not."""


class PaddleLbfgs:
    """An optimizer of class LBFGS."""

    def __init__(self, optimizer: Any) -> None:
        self._optimizer = optimizer
        self._shapes = [list(parameter.shape) for parameter in optimizer._params]
        self._dtype = str(optimizer._params[0].dtype).rpartition(".")[2]
        self._n_elements = sum(map(prod, self._shapes))

    def state(self) -> dict[str, Any]:
        """Return what the optimizer keeps, and the shapes of its parameters."""
        held = self._optimizer.state
        return {
            "class": "LBFGS",
            "shapes": self._shapes,
            "state": {name: _bare(held[name]) for name in _KEPT if name in held},
        }

    def prepare(self, saved: Any, part: str, *, strict: bool) -> Iterator[Action]:  # noqa: ARG002
        """Check that a state fits, and yield the action that loads it."""
        self._check(saved, part)
        wrong = [name for name, value in saved["state"].items() if not self._fits(name, value)]
        lengths = {
            len(saved["state"][name]) for name in (*_HISTORIES, _SCALES) if name in saved["state"] and not wrong
        }
        if not wrong and (len(lengths) > 1 or max(lengths, default=0) > self._optimizer.history_size):
            wrong = [*_HISTORIES, _SCALES]
        if wrong:
            raise StateDictMismatchError(
                f"{part} does not fit this LBFGS: {listed(map(str, wrong))}",
                expected=f"{self._dtype} vectors of {self._n_elements:,} elements, of at most "
                f"{self._optimizer.history_size} steps, and numbers",
                hint="Nothing was changed",
                unexpected=[str(name) for name in wrong],
            )
        yield partial(self._load, saved["state"])

    def _check(self, saved: Any, part: str) -> None:
        """Refuse what `state` does not make, and the state of another optimizer."""
        if not isinstance(saved, Mapping) or saved.keys() != {"class", "shapes", "state"}:
            raise StateDictMismatchError(
                f"{part} is not the state of LBFGS as capture makes it",
                found=listed(map(str, saved)) if isinstance(saved, Mapping) else type(saved).__name__,
                hint="Nothing was changed",
            )
        if saved["class"] != "LBFGS" or saved["shapes"] != self._shapes or not isinstance(saved["state"], Mapping):
            raise StateDictMismatchError(
                f"{part} is the state of another optimizer",
                expected=f"LBFGS of parameters {self._shapes}",
                found=f"{saved['class']!s:.50} of parameters {saved['shapes']!s:.500}",
                hint="Nothing was changed",
            )

    def _fits(self, name: str, value: Any) -> bool:
        """Say whether a value is what the optimizer keeps by that name."""
        if name in _COUNTS:
            return type(value) is int and value >= 0
        if name in _VECTORS:
            return self._is_vector(value)
        if name in _NUMBERS:
            return self._is_number(value)
        if name in _HISTORIES:
            return isinstance(value, list) and all(map(self._is_vector, value))
        return name == _SCALES and isinstance(value, list) and all(map(self._is_number, value))

    def _is_vector(self, value: Any) -> bool:
        return self._is_array(value) and tuple(value.shape) == (self._n_elements,)

    def _is_number(self, value: Any) -> bool:
        return type(value) is float or (self._is_array(value) and prod(value.shape) == 1)

    def _is_array(self, value: Any) -> bool:
        array = as_array(value)
        return array is not None and array.dtype.name == self._dtype

    def _load(self, state: Mapping[str, Any]) -> None:
        self._optimizer.state.clear()
        self._optimizer.state.update({name: _own(value) for name, value in state.items()})


def _bare(value: Any) -> Any:
    """Return a value without gradients, and a list that later steps do not change."""
    if isinstance(value, list):
        return [_bare(item) for item in value]
    return value.detach() if hasattr(value, "detach") else value


def _own(value: Any) -> Any:
    """Return a value whose tensors are Paddle's and have memory of their own."""
    if isinstance(value, list):
        return [_own(item) for item in value]
    array = as_array(value)
    return value if array is None else convert_to("paddle", array).clone()

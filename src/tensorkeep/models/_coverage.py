"""Which bytes of a checkpoint go into which parameters of a model, and which into nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain, islice
from typing import Final, Literal

import msgspec

from tensorkeep.dtypes import torch_row
from tensorkeep.errors import StateDictMismatchError
from tensorkeep.markup import page, table
from tensorkeep.models._parameters import ModelState, ParameterStorage
from tensorkeep.models._plan import Plan
from tensorkeep.tensors import LazyTensor
from tensorkeep.texts import counted, printable, shape_text, share_text, shortened, size_text

Fate = Literal["loaded", "cast", "tied", "unused", "mismatched"]
"""`"loaded"`: as it is; `"cast"`: to the parameter's dtype; `"tied"`: another name of a tensor that is loaded;
`"unused"`: the model has no such name; `"mismatched"`: the parameter has another shape."""

_LOST: Final = frozenset(("unused", "mismatched"))
_HEADINGS: Final = ("tensor", "dtype", "shape", "size", "goes into")
_MAX_ROWS: Final = 20
_MAX_CHARS: Final = 60


class Arrival(msgspec.Struct, frozen=True):
    """What becomes of one tensor of a checkpoint.

    Attributes:
        tensor: Its name in the checkpoint.
        fate: `"loaded"`, `"cast"`, `"tied"`, `"unused"` or `"mismatched"`.
        dtype: Its dtype in the checkpoint, such as `"BF16"`.
        shape: Its shape.
        nbytes: Its size in the checkpoint, in bytes.
        parameters: The names that the model has for it; empty if it goes nowhere.
        becomes: The dtype that it has in the model, if that is another one.
    """

    tensor: str
    fate: Fate
    dtype: str
    shape: tuple[int, ...]
    nbytes: int
    parameters: tuple[str, ...] = ()
    becomes: str | None = None


class Unfilled(msgspec.Struct, frozen=True):
    """A parameter or buffer of a model that gets nothing from a checkpoint.

    Attributes:
        names: The names that the model has for it; several if it is tied.
        shape: Its shape.
        nbytes: Its size in the model, in bytes.
        is_on_meta: Whether it has no data at all.
    """

    names: tuple[str, ...]
    shape: tuple[int, ...]
    nbytes: int
    is_on_meta: bool


class Coverage(msgspec.Struct, frozen=True):
    """How much of a checkpoint goes into a model, and how much of the model it fills. `print` shows it as a table.

    Attributes:
        path: The checkpoint.
        model: The class of the model.
        arrivals: What becomes of each tensor, in the checkpoint's order.
        unfilled: The parameters and saved buffers that get nothing.
        nbytes_of_model: Size of all parameters and saved buffers, in bytes; tied ones count once.
    """

    path: str
    model: str
    arrivals: tuple[Arrival, ...]
    unfilled: tuple[Unfilled, ...]
    nbytes_of_model: int

    @property
    def nbytes(self) -> int:
        """Size of all tensors of the checkpoint, in bytes."""
        return sum(each.nbytes for each in self.arrivals)

    @property
    def nbytes_unused(self) -> int:
        """Size of the tensors that go nowhere, in bytes."""
        return sum(each.nbytes for each in self.unused)

    @property
    def nbytes_unfilled(self) -> int:
        """Size of the parameters that get nothing, in bytes of the model."""
        return sum(each.nbytes for each in self.unfilled)

    @property
    def unused(self) -> tuple[Arrival, ...]:
        """The tensors that go nowhere."""
        return tuple(each for each in self.arrivals if each.fate in _LOST)

    @property
    def share_used(self) -> float:
        """The share of the checkpoint's bytes that the model takes, from 0 to 1."""
        return 1 - self.nbytes_unused / self.nbytes if self.nbytes else 1.0

    @property
    def share_filled(self) -> float:
        """The share of the model's bytes that the checkpoint fills, from 0 to 1."""
        return 1 - self.nbytes_unfilled / self.nbytes_of_model if self.nbytes_of_model else 1.0

    @property
    def is_complete(self) -> bool:
        """Whether every tensor goes into the model, and every parameter is filled."""
        return not self.unused and not self.unfilled

    def require(self, *, used: float = 1.0, filled: float = 1.0) -> None:
        """Raise an error if too little of the checkpoint is used, or of the model filled.

            tensorkeep.torch.coverage(model, "checkpoint").require(used=0.99)

        Args:
            used: Least share of the checkpoint's bytes, from 0 to 1.
            filled: Least share of the model's bytes, from 0 to 1.

        Raises:
            StateDictMismatchError: If a share is smaller; it lists the names.
        """
        if self.share_used >= used and self.share_filled >= filled:
            return
        raise StateDictMismatchError(
            f"too little of the checkpoint arrives in {self.model}",
            path=self.path,
            expected=f"at least {used:.2%} of the checkpoint used, {filled:.2%} of the model filled",
            found=f"{self.share_used:.2%} and {self.share_filled:.2%}",
            hint="print(coverage) lists what goes nowhere and what gets nothing",
            missing=[name for each in self.unfilled for name in each.names],
            unexpected=[each.tensor for each in self.arrivals if each.fate == "unused"],
        )

    def __str__(self) -> str:
        rows = [*self._rows()]
        widths = [max(len(row[place]) for row in [_HEADINGS, *rows]) for place in range(len(_HEADINGS) - 1)]
        lines = [
            "  ".join((*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[-1])).rstrip()
            for row in [_HEADINGS, *rows]
        ]
        n_more = self._n_rows - len(rows)
        return "\n".join([*lines, *([f"and {n_more:,} more"] if n_more else []), "", self._summary])

    def __repr__(self) -> str:
        return f"Coverage({self._summary})"

    def _repr_html_(self) -> str:
        rows = table(_HEADINGS, self._rows(self._n_rows), self._n_rows)
        return page(f"{self.path} in {self.model}", [self._summary], rows)

    @property
    def _n_rows(self) -> int:
        return len(self.arrivals) + len(self.unfilled)

    @property
    def _summary(self) -> str:
        used = share_text(self.nbytes - self.nbytes_unused, self.nbytes) or "nothing"
        filled = share_text(self.nbytes_of_model - self.nbytes_unfilled, self.nbytes_of_model) or "nothing"
        lost = f", {counted(len(self.unused), 'tensor')} unused" if self.unused else ""
        rest = f", {counted(len(self.unfilled), 'parameter')} not" if self.unfilled else ""
        return f"{used} of {size_text(self.nbytes)} used{lost}; {filled} of {self.model} filled{rest}"

    def _rows(self, at_most: int = _MAX_ROWS) -> Iterator[tuple[str, ...]]:
        """Give the rows of the table: first what gets nothing, what goes nowhere, and then the rest."""
        rest = (each for each in self.arrivals if each.fate not in _LOST)
        tensors = map(_row_of_tensor, chain(self.unused, rest))
        yield from islice(chain(map(_row_of_parameter, self.unfilled), tensors), at_most)


def _row_of_parameter(each: Unfilled) -> tuple[str, ...]:
    what = "has no data (device meta)" if each.is_on_meta else "keeps its values"
    return "(nothing)", "", shape_text(each.shape), size_text(each.nbytes), f"{_names(each.names)}, which {what}"


def _row_of_tensor(each: Arrival) -> tuple[str, ...]:
    if each.fate == "unused":
        place = "nothing: the model has no such name"
    elif each.fate == "mismatched":
        place = f"nothing: {_names(each.parameters)} has another shape"
    else:
        place = _names(each.parameters) + (f", as {each.becomes}" if each.becomes else "")
        place += ", which another name filled" if each.fate == "tied" else ""
    return _shown(each.tensor), each.dtype, shape_text(each.shape), size_text(each.nbytes), place


def _names(names: tuple[str, ...]) -> str:
    return " = ".join(map(_shown, names))


def _shown(name: str) -> str:
    return shortened(printable(name), _MAX_CHARS)


def coverage_of(
    plan: Plan, state: ModelState, tensors: Mapping[str, LazyTensor], originals: Mapping[str, str]
) -> tuple[tuple[Arrival, ...], tuple[Unfilled, ...]]:
    """Say what a load by this plan does; `originals` are the names of tensors in the checkpoint."""
    sources = dict(zip((*state.storages, *state.extras), plan.match.sources, strict=True))
    dtypes = {step.storage: step.dtype for step in plan.steps}
    fates: dict[str, tuple[Fate, tuple[str, ...], str | None]] = {
        each.name: ("mismatched", (each.name,), None) for each in plan.match.mismatched
    }
    for storage in state.storages:
        source = sources[storage]
        if source is not None:
            row = torch_row(dtypes[storage])
            becomes = row.name if row is not None and row.name != tensors[source].dtype else None
            fates |= {name: ("tied", storage.names, None) for name in storage.names if name in tensors}
            fates[source] = ("cast" if becomes else "loaded", storage.names, becomes)
    fates |= {source: ("loaded", (name,), None) for name in state.extras if (source := sources[name]) is not None}
    arrivals = (
        Arrival(originals[name], fate, lazy.dtype, lazy.shape, lazy.nbytes, parameters, becomes)
        for name, lazy in tensors.items()
        for fate, parameters, becomes in [fates.get(name, ("unused", (), None))]
    )
    rest = (
        Unfilled(each.names, tuple(each.tensor.shape), _nbytes(each), each.tensor.is_meta)
        for each in plan.rest
        if each.names and not each.is_optional
    )
    extras = (Unfilled((name,), (), 0, False) for name in state.extras if sources[name] is None)
    return tuple(arrivals), (*rest, *extras)


def nbytes_of(state: ModelState) -> int:
    """Return the size of what a model saves, in bytes."""
    return sum(_nbytes(storage) for storage in state.storages if storage.names)


def _nbytes(storage: ParameterStorage) -> int:
    return storage.tensor.numel() * storage.tensor.element_size()

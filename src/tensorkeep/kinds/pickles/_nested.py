"""What one pickle and a set of them have in common: a nested value, which is loaded as a whole or in parts."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Any, Protocol

from tensorkeep.arrays import DEFAULT_FRAMEWORK
from tensorkeep.kinds.base import LoadOptions, Opened
from tensorkeep.parallel import ProgressMeter
from tensorkeep.tensors import Ties, check_ties, chooser, nothing_chosen, selectors_of


class Loadable(Protocol):
    """A value before its tensors are loaded."""

    @property
    def nbytes(self) -> int:
        """Bytes that are loaded."""

    def load(self, meter: ProgressMeter | None) -> Any:
        """Return the value with tensors."""


class NestedPickles(Opened):
    """Tensors whose names are places in a nested value."""

    loads_unknowns = True
    """What is not known to be data is in the loaded value."""

    @abstractmethod
    def value_to_load(
        self, wanted: Callable[[str], bool] | None, *, ties: Ties, with_arrays: bool
    ) -> Loadable | None:
        """Return the saved value, or its part whose names are wanted; None if none is.

        `with_arrays` makes tensors of the framework of NumPy arrays, too.
        """

    @property
    def has_tree(self) -> bool:
        """True: names are places in the value that was saved."""
        return True

    @property
    def is_replaceable(self) -> bool:
        """False: a safetensors file cannot hold every value of a pickle."""
        return False

    def load_state(self, options: LoadOptions) -> Any:
        """Load the saved value or a part of it; a framework that is named is meant for NumPy arrays, too."""
        check_ties(options.ties)
        selectors = None if options.only is None else selectors_of(options.only)
        wanted = None if selectors is None else chooser(selectors)
        with_arrays = options.framework not in {None, DEFAULT_FRAMEWORK}
        value = self.value_to_load(wanted, ties=options.ties, with_arrays=with_arrays)
        if value is None:
            raise nothing_chosen(selectors or [], self, self.path)
        return value.load(ProgressMeter.of(options.progress, value.nbytes))

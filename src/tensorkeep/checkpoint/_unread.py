"""What a load leaves out: objects of a file that are not read."""

from __future__ import annotations

import warnings
from collections.abc import Iterable

from tensorkeep.kinds import Opened
from tensorkeep.tensors import Selector, chooser, selectors_of
from tensorkeep.texts import counted, listed


class UnreadWarning(UserWarning):
    """A file has tensors or other objects that are not read, so they are missing from what was loaded."""


def warn_of_unread(opened: Opened, only: Selector | Iterable[Selector] | None) -> None:
    """Warn of what is missing from what `tensorkeep.load` returns, of the chosen parts or of all."""
    if opened.loads_unknowns:
        return
    is_chosen = chooser(["*"] if only is None else selectors_of(only))
    unread = [each for each in opened.left_out() if not each.is_data and is_chosen(each.name)]
    if unread:
        reasons = listed((f"`{each.name}`: {each.what}" for each in unread), separator="; ")
        message = f"{opened.path}: {counted(len(unread), 'object')} left out, not read as tensors: {reasons}"
        warnings.warn(message, UnreadWarning, stacklevel=5)

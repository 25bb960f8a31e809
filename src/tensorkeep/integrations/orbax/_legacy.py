"""What programs pass as `items`, as the arguments of today. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tensorkeep.errors import UnsupportedError
from tensorkeep.integrations.orbax.args import Composite, PyTreeRestore, PyTreeSave


def save_args_of(items: Any, given: Any, *, by_name: bool) -> Any:
    """Return the arguments that save items, with what is given for each."""
    if items is None:
        raise UnsupportedError("there is nothing to save", expected="args=, such as args.StandardSave(state)")
    given = given or {}
    if not by_name:
        return PyTreeSave(items, **given)
    return Composite(**{name: PyTreeSave(item, **given.get(name, {})) for name, item in _by_name(items).items()})


def restore_args_of(items: Any, given: Any, *, by_name: bool) -> Any:
    """Return the arguments that restore items; None for all, as they were saved."""
    given = given or {}
    if items is None and not given:
        return None
    if not by_name:
        return PyTreeRestore(items, **given)
    items = _by_name(items or {})
    return Composite(**{
        name: PyTreeRestore(items.get(name), **given.get(name, {})) for name in dict.fromkeys([*items, *given])
    })


def _by_name(items: Any) -> Mapping[str, Any]:
    if isinstance(items, Mapping):
        return items
    raise UnsupportedError(
        "the manager has checkpointers by name", expected="items by the same names", found=type(items).__name__
    )

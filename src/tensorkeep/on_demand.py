"""Names of a module that are imported when they are first used (PEP 562)."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping
from typing import Any


def find_on_demand(module: str, name: str, homes: Mapping[str, str]) -> Any:
    """Return what a name of a module means by a table of `"module"` or `"module:name"`, and keep it in the module."""
    if name not in homes:
        raise AttributeError(f"module {module!r} has no attribute {name!r}")
    value = imported(homes[name])
    if ":" in homes[name]:
        setattr(sys.modules[module], name, value)
    return value


def imported(home: str) -> Any:
    """Return a module, or what `"module:name"` means, imported now."""
    module, _, name = home.partition(":")
    value = importlib.import_module(module)
    return getattr(value, name) if name else value

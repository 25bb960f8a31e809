"""The public functions that take a path."""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Iterable, Iterator
from typing import Any

import tensorkeep

MODULES = (
    "tensorkeep",
    "tensorkeep.torch",
    "tensorkeep.numpy",
    "tensorkeep.jax",
    "tensorkeep.patches",
    "tensorkeep.signing",
    "tensorkeep.trust",
    "tensorkeep.server",
    "tensorkeep.viewing",
    *(
        f"tensorkeep.integrations.{name}"
        for name in ("accelerate", "distributed", "lightning", "orbax", "skorch", "transformers")
    ),
)

RENAMED = {"checkpoint_id"}
"""Parameters of torch's own interface, which are given to the constructor too."""

_is_path = re.compile(r"PathLike|\b_Path\b|\bOpenable\b|\bLoadable\b|\bTarget\b").search


def with_paths(modules: Iterable[str] = MODULES) -> Iterator[str]:
    """Yield the names of all public functions, classes and methods that take a path."""
    seen: set[int] = set()
    for module in modules:
        face = importlib.import_module(module)
        for name in getattr(face, "__all__", ()):
            value = getattr(face, name)
            is_ours = callable(value) and getattr(value, "__module__", "").startswith("tensorkeep")
            if is_ours and id(value) not in seen:
                seen.add(id(value))
                short = f"{module}.{name}".removeprefix("tensorkeep.integrations.")
                yield from (short + inner for inner in _taking(value))


def _taking(value: Any) -> Iterator[str]:
    if not inspect.isclass(value):
        if _takes_path(value):
            yield ""
    elif not issubclass(value, (BaseException, tensorkeep.LazyTensor)):
        if "__init__" in vars(value) and _takes_path(value.__init__):
            yield ""
        yield from (
            f".{name}"
            for name, method in vars(value).items()
            if not name.startswith("_") and callable(method) and _takes_path(method)
        )


def _takes_path(function: Any) -> bool:
    parameters = inspect.signature(function).parameters.values()
    return any(each.name not in RENAMED and _is_path(str(each.annotation)) for each in parameters)

"""The copies of Lightning that are installed: `lightning` and `pytorch_lightning` are the same classes twice.

A program uses one of them, and the other is slow to import and of no use to it. So classes are looked for among the
modules that are imported already.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib.util import find_spec
from types import ModuleType
from typing import Any, Final

from tensorkeep.errors import MissingDependencyError, UnsupportedError

_COPIES: Final = (("lightning.pytorch", "lightning.fabric"), ("pytorch_lightning", "lightning_fabric"))
"""Trainer and its foundation, of each copy."""


def import_library() -> None:
    """Import one of the copies, unless one of them is imported."""
    if any(fabric in sys.modules for _, fabric in _COPIES):
        return
    if find_spec("lightning") and find_spec("lightning.pytorch"):
        import lightning.pytorch  # noqa: F401
    elif find_spec("pytorch_lightning"):
        import pytorch_lightning  # noqa: F401
    else:
        raise MissingDependencyError(
            "Lightning is not installed", hint="pip install lightning, or pip install pytorch-lightning"
        )


def register_plugin(cls: type) -> None:
    """Make a class a `CheckpointIO` of all copies that are imported."""
    for _, fabric in _imported():
        fabric.plugins.CheckpointIO.register(cls)


def callback_class() -> Any:
    """Return a base class for callbacks of all copies that are imported."""
    bases = tuple(pytorch.callbacks.Callback for pytorch, _ in _imported() if pytorch is not None)
    return bases[0] if len(bases) == 1 else type("Callback", bases, {})


def library_of(cls: type) -> Any:
    """Return the `lightning.pytorch` or `pytorch_lightning` that a module or data module is of."""
    for pytorch, _ in _imported():
        if pytorch is not None and issubclass(cls, pytorch.LightningModule | pytorch.LightningDataModule):
            return pytorch
    raise UnsupportedError(
        "a checkpoint of Lightning is loaded into its own classes",
        expected="a subclass of LightningModule or LightningDataModule",
        found=f"{cls.__module__}.{cls.__qualname__}",
    )


def named_class(module: str, name: str) -> type | None:
    """Return a class of Lightning's callbacks, by which the first versions named the states of callbacks."""
    is_of_callbacks = any(module.startswith(f"{pytorch}.callbacks") for pytorch, _ in _COPIES)
    for pytorch, _ in _imported():
        if is_of_callbacks and pytorch is not None and name in pytorch.callbacks.__all__:
            found: type = getattr(pytorch.callbacks, name)
            return found
    return None


def attribute_dict(module: str) -> Any:
    """Return the dict of Lightning whose items are attributes, which holds hyper-parameters."""
    found = {fabric.__name__: fabric.utilities.data.AttributeDict for _, fabric in _imported()}
    same = [cls for name, cls in found.items() if module.startswith(f"{name}.")]
    return (same or [*found.values()])[0]


def _imported() -> Iterator[tuple[Any, Any]]:
    """Give the modules of each copy that is imported; None in the place of a Trainer that is not."""
    for pytorch, fabric in _COPIES:
        if (found := _whole(fabric)) is not None:
            yield _whole(pytorch), found


def _whole(name: str) -> ModuleType | None:
    """Return a module that is imported, and not just being imported."""
    module = sys.modules.get(name)
    is_whole = module is not None and not getattr(module.__spec__, "_initializing", False)
    return module if is_whole else None

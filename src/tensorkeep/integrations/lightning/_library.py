"""Both packages of Lightning: `lightning` and `pytorch_lightning` have the same classes twice.

A program uses one of them, and importing the other would only take time. So classes are looked up in modules
that are already imported.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib.util import find_spec
from types import ModuleType
from typing import Any, Final

from tensorkeep.errors import MissingDependencyError, UnsupportedError

_COPIES: Final = (("lightning.pytorch", "lightning.fabric"), ("pytorch_lightning", "lightning_fabric"))
"""The modules with the Trainer and with Fabric, of each package."""


def import_library() -> None:
    """Import one of the packages, unless one is imported already."""
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
    """Register a class as a `CheckpointIO` of all imported packages."""
    for _, fabric in _imported():
        fabric.plugins.CheckpointIO.register(cls)


def callback_class() -> Any:
    """Return a base class for callbacks of all imported packages."""
    bases = tuple(pytorch.callbacks.Callback for pytorch, _ in _imported() if pytorch is not None)
    return bases[0] if len(bases) == 1 else type("Callback", bases, {})


def library_of(cls: type) -> Any:
    """Return the package, `lightning.pytorch` or `pytorch_lightning`, of a module or data module."""
    for pytorch, _ in _imported():
        if pytorch is not None and issubclass(cls, pytorch.LightningModule | pytorch.LightningDataModule):
            return pytorch
    raise UnsupportedError(
        "not a class of Lightning",
        expected="a subclass of LightningModule or LightningDataModule",
        found=f"{cls.__module__}.{cls.__qualname__}",
    )


def named_class(module: str, name: str) -> type | None:
    """Return a callback class of Lightning by name: in early versions it was the key of the callback's state."""
    is_of_callbacks = any(module.startswith(f"{pytorch}.callbacks") for pytorch, _ in _COPIES)
    for pytorch, _ in _imported():
        if is_of_callbacks and pytorch is not None and name in pytorch.callbacks.__all__:
            found: type = getattr(pytorch.callbacks, name)
            return found
    return None


def attribute_dict(module: str) -> Any:
    """Return Lightning's class for hyper-parameters, a dict whose items are attributes."""
    found = {fabric.__name__: fabric.utilities.data.AttributeDict for _, fabric in _imported()}
    same = [cls for name, cls in found.items() if module.startswith(f"{name}.")]
    return (same or [*found.values()])[0]


def _imported() -> Iterator[tuple[Any, Any]]:
    """Yield the modules of each imported package; None for the Trainer's if only Fabric is imported."""
    for pytorch, fabric in _COPIES:
        if (found := _whole(fabric)) is not None:
            yield _whole(pytorch), found


def _whole(name: str) -> ModuleType | None:
    """Return a module that is fully imported, or None."""
    module = sys.modules.get(name)
    is_whole = module is not None and not getattr(module.__spec__, "_initializing", False)
    return module if is_whole else None

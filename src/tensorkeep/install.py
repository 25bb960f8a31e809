"""`install_as_safetensors`: tensorkeep under the name safetensors, for libraries that import it.

This imports nothing else of tensorkeep before it is used, so that it can run at the start of every interpreter.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import importlib.metadata
import importlib.util
import sys
import warnings
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Final

from tensorkeep.phrases import listed

__all__ = ["install_as_safetensors"]

REFERENCE_VERSION: Final = "0.8.0"
"""The version of safetensors whose names and signatures these are."""

_SUBMODULES: Final = ("flax", "mlx", "numpy", "paddle", "tensorflow", "torch")
"""The submodules of safetensors: `safetensors.torch` is `tensorkeep.torch`, and so on, if tensorkeep has it."""


def install_as_safetensors() -> None:
    """Make `import safetensors`, and its submodules, import tensorkeep in this process.

        import tensorkeep
        tensorkeep.install_as_safetensors()
        import transformers  # reads and writes with tensorkeep

    Call it before you import the libraries that use safetensors: transformers, huggingface_hub, accelerate and skorch
    then run on tensorkeep unchanged. The safetensors package need not be installed. Calling it twice does no harm.

    Warns:
        RuntimeWarning: If modules imported earlier still use the other implementation.
    """
    if any(isinstance(finder, _Finder) for finder in sys.meta_path):
        return
    sys.meta_path.insert(0, _Finder())
    replaced = [sys.modules.pop(name) for name in list(sys.modules) if name.partition(".")[0] == "safetensors"]
    if not replaced:
        return
    theirs = {id(value) for module in replaced for value in [module, *vars(module).values()] if _is_theirs(value)}
    too_early = sorted(name for name, module in list(sys.modules.items()) if not theirs.isdisjoint(_held_by(module)))
    if too_early:
        warnings.warn(
            f"{listed(too_early)} imported safetensors before tensorkeep.install_as_safetensors() was "
            "called, and keep using it; call it first",
            RuntimeWarning,
            stacklevel=2,
        )


def _is_theirs(value: object) -> bool:
    """Say whether a value in a module of safetensors was defined there."""
    if isinstance(value, ModuleType):
        return value.__name__.startswith("safetensors")
    made_in = str(getattr(value, "__module__", ""))  # the classes made in Rust say "builtins"
    return callable(value) and made_in.startswith(("safetensors", "builtins"))


def _held_by(module: object) -> list[int]:
    """Return the identities of what a module holds, without running its code."""
    return [id(value) for value in list(vars(module).values())] if issubclass(type(module), ModuleType) else []


class _Finder(importlib.abc.MetaPathFinder):
    """Finds the modules of safetensors, and its distribution if it is not installed."""

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,  # noqa: ARG002 - the protocol's
        target: ModuleType | None = None,  # noqa: ARG002 - the protocol's
    ) -> importlib.machinery.ModuleSpec | None:
        own = _own_module(fullname)
        if own is None:
            return None
        return importlib.machinery.ModuleSpec(fullname, _Loader(), origin=own, is_package=fullname == "safetensors")

    def find_distributions(
        self, context: importlib.metadata.DistributionFinder.Context | None = None
    ) -> Iterable[importlib.metadata.Distribution]:
        if context is not None and context.name == "safetensors" and not _is_installed():
            yield _Distribution()


def _own_module(fullname: str) -> str | None:
    """Return the module of tensorkeep that is imported under a name of safetensors."""
    package, _, submodule = fullname.partition(".")
    if package != "safetensors":
        return None
    if not submodule:
        return "tensorkeep.compat"
    own = f"tensorkeep.{submodule}"
    return own if submodule in _SUBMODULES and importlib.util.find_spec(own) is not None else None


def _is_installed() -> bool:
    return any(importlib.metadata.MetadataPathFinder.find_distributions(_context()))


def _context() -> importlib.metadata.DistributionFinder.Context:
    return importlib.metadata.DistributionFinder.Context(name="safetensors")


class _Loader(importlib.abc.Loader):
    """Loads a module of tensorkeep under a name of safetensors."""

    def __init__(self) -> None:
        self._own_spec: importlib.machinery.ModuleSpec | None = None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        if spec.name == "safetensors":
            return None
        module = importlib.import_module(str(spec.origin))
        self._own_spec = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        if self._own_spec is not None:  # the same module object, so that a patch of one is a patch of both
            module.__spec__ = self._own_spec
            return
        source = importlib.import_module("tensorkeep.compat")
        errors = importlib.import_module("tensorkeep.errors")
        public = {name: value for name, value in vars(source).items() if not name.startswith("__")}
        module.__dict__.update(public, SafetensorError=errors.SafetensorError, __version__=REFERENCE_VERSION)
        module.__doc__ = source.__doc__
        module.__file__ = source.__file__


class _Distribution(importlib.metadata.Distribution):
    """What `importlib.metadata.version("safetensors")` finds if the package is not installed."""

    def read_text(self, filename: str) -> str | None:
        if filename != "METADATA":
            return None
        return f"Metadata-Version: 2.1\nName: safetensors\nVersion: {REFERENCE_VERSION}\n"

    def locate_file(self, path: object) -> Path:
        return Path(str(path))

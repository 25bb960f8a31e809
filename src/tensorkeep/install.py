"""`install_as_safetensors`: tensorkeep under the name safetensors, for libraries that import it.

This imports nothing else of tensorkeep before it is used, so that it can run at the start of every interpreter.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import importlib.metadata
import importlib.util
import os
import re
import sys
import warnings
from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path
from types import ModuleType
from typing import Final

from tensorkeep.texts import listed

__all__ = ["install_as_safetensors"]

VERSIONS: Final = {"0.8": "0.8.0", "0.9": "0.9.0rc1"}
"""The series of safetensors that tensorkeep can stand in for, each with its latest version."""

VARIABLE: Final = "TENSORKEEP_AS_SAFETENSORS"
"""The environment variable that the hook obeys: 1, or a version to stand in for."""

HOOK_NAME: Final = "tensorkeep-hook.pth"
HOOK: Final = (
    f"import os; os.environ.get({VARIABLE!r}, '0') in ('', '0') "
    "or __import__('tensorkeep.install').install.install_by_environment()\n"
)
"""A line that Python runs whenever it starts, if it is in a .pth file of site-packages."""

_NAMES: Final = (
    *("SafetensorError", "TensorSpec", "_safe_open_handle", "deserialize", "safe_open", "serialize"),
    "serialize_file",
)
_NAMES_SINCE_0_9: Final = ("PrefetchLoader", "PySafeSlice", "TensorMeta")

_PACKAGE: Final = "safetensors"
_EXTENSION: Final = "safetensors._safetensors_rust"
"""The module of the reference's compiled code, from which libraries import too."""

_SUBMODULES: Final = ("flax", "mlx", "numpy", "paddle", "tensorflow", "torch")
"""The submodules of safetensors: `safetensors.torch` is `tensorkeep.torch`, and so on, if tensorkeep has it."""


def install_as_safetensors(version: str | None = None) -> None:
    """Make `import safetensors`, and its submodules, import tensorkeep in this process.

        import tensorkeep
        tensorkeep.install_as_safetensors()
        import transformers  # reads and writes with tensorkeep

    Call it before you import the libraries that use safetensors: transformers, huggingface_hub, accelerate and skorch
    then run on tensorkeep unchanged. The safetensors package need not be installed. Calling it twice does no harm.

    Args:
        version: What `safetensors.__version__` says and which names there are: `"0.8"` or `"0.9"`. By default, the
            installed version, or 0.8 without the package.

    Raises:
        ValueError: If there is no such version here, or an earlier call chose another one.

    Warns:
        RuntimeWarning: If modules imported earlier still use the other implementation.
    """
    if version is not None and version not in VERSIONS:
        raise ValueError(f"tensorkeep stands in for safetensors {' or '.join(VERSIONS)}: found {version!r:.100}")
    for finder in sys.meta_path:
        if isinstance(finder, _Finder):
            if version not in (None, finder.series):
                raise ValueError(
                    f"tensorkeep already stands in for safetensors {finder.series} here: found {version!r}"
                )
            return
    sys.meta_path.insert(0, _Finder(version))
    _replace_imported()


def install_by_environment() -> None:
    """Stand in for safetensors as the environment variable says; the hook calls this."""
    asked = os.environ[VARIABLE]
    install_as_safetensors(None if asked == "1" else asked)


def _replace_imported() -> None:
    """Forget modules of safetensors that were imported before, and warn if other modules hold their contents."""
    replaced = [sys.modules.pop(name) for name in list(sys.modules) if name.partition(".")[0] == _PACKAGE]
    if not replaced:
        return
    theirs = {id(value) for module in replaced for value in [module, *vars(module).values()] if _is_theirs(value)}
    too_early = sorted(name for name, module in list(sys.modules.items()) if not theirs.isdisjoint(_held_by(module)))
    if too_early:
        warnings.warn(
            f"{listed(too_early)} imported safetensors before tensorkeep.install_as_safetensors() was "
            "called, and keep using it; call it first",
            RuntimeWarning,
            stacklevel=3,
        )


def _is_theirs(value: object) -> bool:
    """Say whether a value in a module of safetensors was defined there."""
    if isinstance(value, ModuleType):
        return value.__name__.startswith(_PACKAGE)
    made_in = str(getattr(value, "__module__", ""))  # the classes made in Rust say "builtins"
    return callable(value) and made_in.startswith((_PACKAGE, "builtins"))


def _held_by(module: object) -> list[int]:
    """Return the identities of what a module holds, without running its code."""
    return [id(value) for value in list(vars(module).values())] if issubclass(type(module), ModuleType) else []


class _Finder(importlib.abc.MetaPathFinder):
    """Finds the modules of safetensors, and its distribution if another version, or none, is installed."""

    def __init__(self, series: str | None) -> None:
        self._asked = series

    @cached_property
    def series(self) -> str:
        """The series that tensorkeep replaces."""
        if self._asked is not None:
            return self._asked
        installed = _installed_version() or VERSIONS["0.8"]
        return "0.9" if _as_series(installed) >= (0, 9) else "0.8"

    @cached_property
    def version(self) -> str:
        """The version that tensorkeep replaces."""
        installed = _installed_version()
        is_of_series = installed is not None and installed.startswith(f"{self.series}.")
        return installed if installed is not None and is_of_series else VERSIONS[self.series]

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,  # noqa: ARG002 - the protocol's
        target: ModuleType | None = None,  # noqa: ARG002 - the protocol's
    ) -> importlib.machinery.ModuleSpec | None:
        own = _own_module(fullname)
        if own is None:
            return None
        is_package = fullname == _PACKAGE
        return importlib.machinery.ModuleSpec(fullname, _Loader(self), origin=own, is_package=is_package)

    def find_distributions(
        self, context: importlib.metadata.DistributionFinder.Context | None = None
    ) -> Iterable[importlib.metadata.Distribution]:
        if context is not None and context.name == _PACKAGE and _installed_version() != self.version:
            yield _Distribution(self.version)


def _own_module(fullname: str) -> str | None:
    """Return the module of tensorkeep that is imported under a name of safetensors."""
    if fullname in (_PACKAGE, _EXTENSION):
        return "tensorkeep.compat"
    package, _, submodule = fullname.partition(".")
    if package != _PACKAGE or submodule not in _SUBMODULES:
        return None
    own = f"tensorkeep.{submodule}"
    return own if importlib.util.find_spec(own) is not None else None


def _installed_version() -> str | None:
    """Return the version of the safetensors package that is installed; None without one."""
    context = importlib.metadata.DistributionFinder.Context(name=_PACKAGE)
    return next((found.version for found in importlib.metadata.MetadataPathFinder.find_distributions(context)), None)


def _as_series(version: str) -> tuple[int, ...]:
    """Return the first two numbers of a version."""
    return tuple(int(number) for number in re.findall(r"\d+", version)[:2])


class _Loader(importlib.abc.Loader):
    """Loads a module of tensorkeep under a name of safetensors."""

    def __init__(self, finder: _Finder) -> None:
        self._finder = finder
        self._own_spec: importlib.machinery.ModuleSpec | None = None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        if spec.name in (_PACKAGE, _EXTENSION):
            return None
        module = importlib.import_module(str(spec.origin))
        self._own_spec = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        if self._own_spec is not None:  # the same module object, so that a patch of one is a patch of both
            module.__spec__ = self._own_spec
            return
        source = importlib.import_module("tensorkeep.compat")
        names = _NAMES if self._finder.series == "0.8" else _NAMES + _NAMES_SINCE_0_9
        module.__dict__.update({name: vars(source)[name] for name in names}, __version__=self._finder.version)
        module.__doc__ = source.__doc__
        module.__file__ = source.__file__
        if module.__name__ == _PACKAGE:
            importlib.import_module(_EXTENSION)


class _Distribution(importlib.metadata.Distribution):
    """What `importlib.metadata.version("safetensors")` finds."""

    def __init__(self, version: str) -> None:
        self._version = version

    def read_text(self, filename: str) -> str | None:
        if filename != "METADATA":
            return None
        return f"Metadata-Version: 2.1\nName: {_PACKAGE}\nVersion: {self._version}\n"

    def locate_file(self, path: object) -> Path:
        return Path(str(path))

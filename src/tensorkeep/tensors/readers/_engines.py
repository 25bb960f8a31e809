"""Whole tensors loaded by other libraries, from files whose headers were checked here."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np

from tensorkeep.dtypes import BY_NAME, torch_row
from tensorkeep.entries import TensorEntry
from tensorkeep.errors import IntegrityError, TensorkeepError, TransportError, UnsupportedError, importing
from tensorkeep.tensors.readers._contiguous import TensorReader
from tensorkeep.transport import ByteSource, LocalFile

_Tensors = Iterator[tuple[str, Any]]
"""Names and tensors that own their memory."""


def _by_safetensors(path: str, names: Sequence[str], device: str) -> _Tensors:
    with importing(safetensors="safetensors"):
        from safetensors import safe_open
    with safe_open(path, framework="pt", device=device) as file:
        if device.startswith("cuda") and hasattr(file, "prefetch"):  # since 0.9
            with file.prefetch(dict.fromkeys(names)) as loader:
                yield from loader
        else:
            yield from ((name, file.get_tensor(name)) for name in names)


def _by_fastsafetensors(path: str, names: Sequence[str], device: str) -> _Tensors:
    with importing(fastsafetensors="fastsafetensors"):
        from fastsafetensors import fastsafe_open
    with fastsafe_open([path], framework="pt", device=device, nogds=True) as file:
        yield from ((name, file.get_tensor(name).clone()) for name in names)  # it gives views of a buffer


def _by_instanttensor(path: str, names: Sequence[str], device: str) -> _Tensors:
    with importing(instanttensor="instanttensor"):
        from instanttensor import safe_open
    wanted = {"tensor_filter": list(names), "tensor_name_match_mode": "exact"}
    with safe_open([path], framework="pt", device=device, copy=True, **wanted) as file:
        yield from file.tensors()


_ENGINES: Final[dict[str, Callable[[str, Sequence[str], str], _Tensors]]] = {
    "fastsafetensors": _by_fastsafetensors,
    "instanttensor": _by_instanttensor,
    "safetensors": _by_safetensors,
}
ENGINES: Final = tuple(_ENGINES)
"""Names of the libraries, written after fastsafetensors 0.5, InstantTensor 0.2, safetensors 0.8 and 0.9.0rc1."""


class EngineReader(TensorReader):
    """Lets a library load whole tensors of torch; parts, and other frameworks, are read as by a `TensorReader`."""

    loads_at_once = True

    def __init__(self, source: ByteSource, data_start: int, framework: str, device: Any, engine: str) -> None:
        super().__init__(source, data_start, framework, device)
        self._engine = engine
        if framework != "torch" or not isinstance(source, LocalFile):
            raise UnsupportedError(
                f"{engine} loads only local files, for torch",
                path=source.name,
                hint='Pass framework="torch", or name no engine',
            )

    def __reduce__(self) -> tuple[Any, ...]:
        return EngineReader, (self.source, self.data_start, self.framework, self.device, self._engine)

    def with_framework(self, framework: str, device: Any = "cpu") -> TensorReader:
        """Return the same reader for another device; for another array library, one without the engine."""
        if framework != self.framework:
            return super().with_framework(framework, device)
        return EngineReader(self.source, self.data_start, framework, device, self._engine)

    def checking(self, checked: ByteSource) -> TensorReader:  # noqa: ARG002
        """Refuse: what a library reads is not compared with digests."""
        raise UnsupportedError(
            f"{self._engine} does not compare tensors with digests",
            path=self.source.name,
            hint="Leave out verify=True, or name no engine",
        )

    def staged(self, entries: Mapping[str, TensorEntry]) -> None:  # noqa: ARG002
        """Return None: the library has its own way to a device."""
        return

    def load(self, entries: Mapping[str, TensorEntry], *, are_apart: bool = False) -> dict[str, Any]:  # noqa: ARG002
        """Load whole tensors, which own their memory."""
        wanted = {name: entry for name, entry in entries.items() if entry.nbytes}
        loaded = super().load({name: entry for name, entry in entries.items() if not entry.nbytes})
        if wanted:
            loaded |= self._loaded(wanted)
        return {name: loaded[name] for name in entries}

    def _loaded(self, entries: Mapping[str, TensorEntry]) -> dict[str, Any]:
        try:
            found = dict(_ENGINES[self._engine](self._checked_path(), list(entries), self._device_name()))
        except TensorkeepError:
            raise
        except Exception as error:
            raise TransportError(
                f"{self._engine} could not load the file", path=self.source.name, found=f"{error!s:.300}"
            ) from error
        for name, entry in entries.items():
            if name not in found or not _is_as_described(found[name], entry):
                raise IntegrityError(
                    f"{self._engine} did not load tensor `{name}` as the header describes it",
                    path=self.source.name,
                    tensor=name,
                    expected=f"{entry.dtype} {list(entry.shape)}",
                    found=f"{found[name].dtype} {list(found[name].shape)}" if name in found else "nothing",
                )
        return found

    def _device_name(self) -> str:
        """Return the device in full, such as `"cuda:1"` for 1: the libraries know different spellings."""
        return str(self.adapter.from_elements(np.empty(0, np.uint8), BY_NAME["U8"]).device)

    def _checked_path(self) -> str:
        """Return a path to the file whose header was checked, even if another file has its name by now."""
        source: Any = self.source
        path = f"/proc/self/fd/{source.descriptor().number}"
        return path if os.path.exists(path) else os.path.abspath(source.name)


def _is_as_described(tensor: Any, entry: TensorEntry) -> bool:
    dtype = entry.known_dtype
    is_packed = dtype is not None and dtype.is_packed  # torch counts pairs
    return (
        torch_row(tensor.dtype) == dtype
        and tensor.nbytes == entry.nbytes
        and (is_packed or tuple(tensor.shape) == entry.shape)
    )

"""Legacy streams that are put together by hand, so that each part can be another than torch writes."""

from __future__ import annotations

import io
import pickle
from collections import OrderedDict
from typing import Any, NamedTuple

import torch

MAGIC = 0x1950A86A20F9469CFC6C


class Storage(NamedTuple):
    """A storage as a persistent id describes it."""

    kind: type
    key: str
    n_elements: int
    view: tuple[str, int, int] | None = None
    location: str = "cpu"


class Tensor(NamedTuple):
    """A tensor of such a storage, which pickles as torch's own."""

    storage: Storage
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]


class _StandIn:
    """What the pickler writes a persistent id for."""

    def __init__(self, storage: Storage) -> None:
        self.storage = storage


class _Rebuilt:
    def __init__(self, tensor: Tensor, stand_ins: dict[Storage, _StandIn]) -> None:
        self._tensor = tensor
        self._stand_ins = stand_ins

    def __reduce__(self) -> Any:
        storage, *layout = self._tensor
        stand_in = self._stand_ins.setdefault(storage, _StandIn(storage))
        return torch._utils._rebuild_tensor_v2, (stand_in, *layout, False, OrderedDict())


class _Pickler(pickle.Pickler):
    def persistent_id(self, value: Any) -> Any:
        if type(value) is not _StandIn:
            return None
        kind, key, n_elements, view, location = value.storage
        return ("storage", kind, key, location, n_elements, view)


def object_pickle(tensors: dict[str, Tensor], protocol: int = 2) -> bytes:
    """Pickle a dict of such tensors."""
    stand_ins: dict[Storage, _StandIn] = {}
    file = io.BytesIO()
    _Pickler(file, protocol).dump({name: _Rebuilt(tensor, stand_ins) for name, tensor in tensors.items()})
    return file.getvalue()


def counted(data: bytes, n_elements: int, byteorder: Any = "little") -> bytes:
    """Return a storage as it stands after the keys."""
    return n_elements.to_bytes(8, byteorder, signed=True) + data


def legacy_file(
    value: bytes,
    keys: Any,
    storages: list[bytes],
    *,
    magic: Any = MAGIC,
    version: Any = 1001,
    system: Any = None,
    is_little_endian: bool = True,
) -> bytes:
    """Return the whole stream; what is not bytes is pickled, what is bytes is taken as a pickle.

    Args:
        value: The pickle of the object.
        keys: The list of storages.
        storages: Each as `counted` gives it.
        magic: The first pickle.
        version: The second pickle.
        system: The third pickle; by default what torch writes.
        is_little_endian: What it says of the machine.
    """
    if system is None:
        sizes = {"short": 2, "int": 4, "long": 4}
        system = {"protocol_version": 1001, "little_endian": is_little_endian, "type_sizes": sizes}
    parts = [magic, version, system, value, keys]
    return b"".join([*(part if type(part) is bytes else pickle.dumps(part, 2) for part in parts), *storages])


def saved(value: Any, protocol: int = 2) -> bytes:
    """Return what torch itself writes."""
    file = io.BytesIO()
    torch.save(value, file, _use_new_zipfile_serialization=False, pickle_protocol=protocol)
    return file.getvalue()

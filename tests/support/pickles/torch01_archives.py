"""Tar archives as torch 0.1 wrote them; `torch.load` of today reads them, which proves the layout."""

from __future__ import annotations

import io
import pickle
import struct
import tarfile
from collections.abc import Mapping
from typing import Any, NamedTuple

import torch

SYSTEM = {"protocol_version": 1000, "little_endian": True, "type_sizes": {"short": 2, "int": 4, "long": 4}}


class Storage(NamedTuple):
    """A storage and its bytes."""

    number: Any
    kind: Any
    data: bytes
    n_elements: int
    location: Any = "cpu"


class Tensor(NamedTuple):
    """A tensor of a storage."""

    number: Any
    storage: Any
    kind: Any
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int = 0
    ndim: int | None = None


def dumped(value: Any) -> bytes:
    return pickle.dumps(value, 2)


def storages_member(storages: list[Storage], views: Any = (), count: Any = None) -> bytes:
    parts = [dumped(len(storages) if count is None else count)]
    for number, kind, data, n_elements, location in storages:
        parts += [dumped((number, location, kind)), struct.pack("<q", n_elements), data]
    return b"".join([*parts, views if type(views) is bytes else dumped(list(views))])


def tensors_member(tensors: list[Tensor], count: Any = None) -> bytes:
    parts = [dumped(len(tensors) if count is None else count)]
    for number, storage, kind, shape, strides, offset, ndim in tensors:
        numbers = (*shape, *strides, offset)
        dimensions = struct.pack("<i4x", len(shape) if ndim is None else ndim)
        parts += [dumped((number, storage, kind)), dimensions, struct.pack(f"<{len(numbers)}q", *numbers)]
    return b"".join(parts)


class Named:
    """A value that the object names by its number."""

    def __init__(self, number: Any) -> None:
        self.number = number


class _Pickler(pickle.Pickler):
    def persistent_id(self, value: Any) -> Any:
        return str(value.number) if type(value) is Named else None


def object_member(value: Any) -> bytes:
    file = io.BytesIO()
    _Pickler(file, 2).dump(value)
    return file.getvalue()


def members_of(
    value: Any, storages: list[Storage], tensors: list[Tensor], *, views: Any = (), system: Any = SYSTEM
) -> dict[str, bytes]:
    """Return the four members, in the order of torch 0.1."""
    return {
        "sys_info": dumped(system),
        "pickle": object_member(value),
        "tensors": tensors_member(tensors),
        "storages": storages_member(storages, views),
    }


def archive(members: Mapping[str, bytes], *, mtime: float = 1485907200.25, form: int = tarfile.PAX_FORMAT) -> bytes:
    """Return the archive; a time with a fraction makes pax records, as it did then."""
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w:", format=form) as tar:
        for name, data in members.items():
            member = tarfile.TarInfo(name)
            member.size, member.mtime, member.uname = len(data), mtime, "someone"  # type: ignore[assignment]
            tar.addfile(member, io.BytesIO(data))
    return file.getvalue()


def example() -> dict[str, bytes]:
    """Return the members of an archive with two storages, a view of one, and four tensors."""
    floats = torch.arange(12, dtype=torch.float32)
    longs = torch.arange(5, dtype=torch.int64)
    storages = [
        Storage(140001, torch.FloatStorage, floats.numpy().tobytes(), 12),
        Storage(140002, torch.LongStorage, longs.numpy().tobytes(), 5),
    ]
    tensors = [
        Tensor(1, 140001, torch.FloatTensor, (3, 4), (4, 1)),
        Tensor(2, 140001, torch.FloatTensor, (4, 3), (1, 4)),
        Tensor(3, 140002, torch.LongTensor, (2,), (2,), 1),
        Tensor(4, 140003, torch.FloatTensor, (2, 2), (2, 1), 1),
    ]
    value = {"weight": Named(1), "transposed": Named(2), "steps": [Named(3), 7], "part": Named(4)}
    return members_of(value, storages, tensors, views=[(140003, 140001, 3, 6)])

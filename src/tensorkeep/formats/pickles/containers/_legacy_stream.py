"""What torch wrote before 1.6, and still writes on request: pickles and storages in one stream.

    pickle  0x1950A86A20F9469CFC6C, a magic number
    pickle  1001, the version
    pickle  {"protocol_version": 1001, "little_endian": True, "type_sizes": {…}}
    pickle  the object; its persistent ids name the storages
    pickle  ["94230", …], the keys of the storages, in the order of their bytes
    then for each key
    int64   elements of the storage
    bytes   the elements, without padding

In files of torch 0.x a part of a storage may be a storage of its own; only whole ones have bytes in the stream.

On every machine, torch writes and reads numbers of 2, 4 and 8 bytes as little-endian. On big-endian machines, early
versions wrote the counts big-endian, and no version wrote complex numbers or storages without a dtype in a way that
other machines can read: these are refused.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tensorkeep.dtypes import ALL_BY_NAME
from tensorkeep.errors import PickleError, UnsupportedError
from tensorkeep.formats.pickles.containers._window import Window
from tensorkeep.formats.pickles.limits import children_of
from tensorkeep.formats.pickles.machine import Context
from tensorkeep.formats.pickles.values import PickleDocument, StorageRecord, TensorRecord, short_repr
from tensorkeep.transport import ByteRange, ByteSource

LEGACY_MAGIC = 0x1950A86A20F9469CFC6C
"""The magic number, the first pickle of such a file."""

_VERSION = 1001
_COUNT_NBYTES = 8


def read_legacy(source: ByteSource, context: Context) -> PickleDocument:
    """Read a legacy stream; storages are located, not read."""
    window = Window(source, ByteRange(0, source.nbytes), context)
    is_big_endian = _read_start(window)
    value = window.run()
    keys = _read_keys(window, context.stored)
    if is_big_endian:
        _check_order(value, context.storages)
    spans = {key: _pass_storage(window, context.storages[key], is_big_endian) for key in keys}
    if window.n_left:
        raise PickleError(
            "bytes follow the last storage", expected="the end of the file", found=f"{window.n_left:,} bytes"
        )
    return PickleDocument(
        "legacy", value, context.storages, spans, dangers=context.dangers, embedded=context.embedded
    )


def _read_start(window: Window) -> bool:
    """Read the first three pickles; return whether a big-endian machine wrote the file."""
    for name, number in (("magic number", LEGACY_MAGIC), ("version", _VERSION)):
        found = window.run_plain()
        if type(found) is not int or found != number:
            raise PickleError(
                f"wrong {name} for a legacy file of torch", expected=f"{number:#x}", found=short_repr(found)
            )
    system = window.run_plain()
    if type(system) is not dict or type(system.get("little_endian")) is not bool:
        raise PickleError(
            "the file does not declare the byte order of the machine that wrote it",
            expected="little_endian",
            found=short_repr(system),
        )
    return not system["little_endian"]


def _read_keys(window: Window, storages: dict[str, StorageRecord]) -> list[str]:
    keys = window.run_plain()
    if type(keys) is not list or any(type(key) is not str for key in keys):
        raise PickleError("the keys of the storages are not a list of texts", found=short_repr(keys))
    named = set(keys)
    if len(named) != len(keys):
        raise PickleError("duplicate storage keys", expected=f"{len(named):,} storages", found=f"{len(keys):,}")
    if named != storages.keys():
        missing, extra = sorted(storages.keys() - named)[:3], sorted(named - storages.keys())[:3]
        raise PickleError(
            "the listed storages are not those of the object",
            expected=f"{len(storages):,} storages",
            found=f"{len(named):,}; missing {missing}, unexpected {extra}",
        )
    return keys


def _pass_storage(window: Window, storage: StorageRecord, is_big_endian: bool) -> ByteRange:
    """Compare the size of a storage with the object's description, and skip its bytes."""
    count = window.take(_COUNT_NBYTES)
    n_elements = int.from_bytes(count, "little", signed=True)
    if is_big_endian and n_elements != storage.n_elements:
        n_elements = int.from_bytes(count, "big", signed=True)
    if n_elements != storage.n_elements:
        raise PickleError(
            f"storage {storage.key} does not have the size that the object declares",
            expected=f"{storage.n_elements:,} elements",
            found=f"{n_elements:,}",
        )
    return window.skip(storage.nbytes)


def _check_order(value: Any, storages: dict[str, StorageRecord]) -> None:
    """Refuse what a big-endian machine did not write as little-endian."""
    is_complex = any(ALL_BY_NAME[storage.dtype].is_complex for storage in storages.values())
    if is_complex or any(map(_is_cast, _tensors_in(value))):
        raise UnsupportedError(
            "a big-endian machine wrote this legacy file, in which the byte order of complex numbers and of storages "
            "without a dtype is ambiguous",
            hint="Save it there as a zip archive, torch's default",
        )


def _is_cast(tensor: TensorRecord) -> bool:
    """Say whether a tensor has a dtype of several bytes over a storage of another dtype."""
    is_other = tensor.storage is not None and tensor.storage.dtype != tensor.dtype
    return is_other and ALL_BY_NAME[tensor.dtype].itemsize > 1


def _tensors_in(value: Any) -> Iterator[TensorRecord]:
    waiting = [value]
    seen = set()
    while waiting:
        node = waiting.pop()
        if id(node) not in seen:
            seen.add(id(node))
            waiting.extend(children_of(node))
            if type(node) is TensorRecord:
                yield node

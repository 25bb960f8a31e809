"""Parse the `.metadata` of a distributed checkpoint: which file holds which part of which tensor. Pure.

It is a pickle of torch dataclasses. They arrive as inert records of names and attributes, which are checked here;
nothing is imported or called.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import prod
from typing import Any, Final, NoReturn

import msgspec

from tensorkeep.dtypes import ALL_BY_NAME, DType
from tensorkeep.errors import LimitError, PickleError, UnsupportedError
from tensorkeep.formats.pickles import Label, Unknown, short_repr
from tensorkeep.limits import MAX_I64, MAX_NDIM, MAX_STATE_DEPTH
from tensorkeep.paths import is_inside
from tensorkeep.tensors import Region

_BY_TORCH: Final = {f"torch.{dtype.torch}": dtype for dtype in ALL_BY_NAME.values() if dtype.torch}
_OFFERED: Final = 1_000
"""Chunks that are always accepted; beyond these, their number must be in proportion to the storage records."""

_Path = tuple[str | int, ...]


class Item(msgspec.Struct, frozen=True):
    """Where something was written.

    Attributes:
        file: Path below the directory.
        start: First byte in the file.
        stop: One past the last byte.
    """

    file: str
    start: int
    stop: int


class Chunk(msgspec.Struct, frozen=True):
    """A part of a tensor.

    Attributes:
        region: Its place in the tensor.
        item: Its place in the files.
    """

    region: Region
    item: Item


class ChunkedTensor(msgspec.Struct, frozen=True):
    """A tensor in parts.

    Attributes:
        dtype: Dtype name, such as `"F32"`.
        shape: Number of elements along each dimension.
        chunks: Its parts.
    """

    dtype: str
    shape: tuple[int, ...]
    chunks: tuple[Chunk, ...]


class SavedState(msgspec.Struct, frozen=True):
    """What was saved.

    Attributes:
        tensors: Name to tensor.
        values: Name to place, for values that are not tensors.
        paths: Name to the keys and indices that lead to it in the nested state; empty for a flat state.
    """

    tensors: dict[str, ChunkedTensor]
    values: dict[str, Item]
    paths: dict[str, _Path]

    @property
    def items(self) -> Iterator[Item]:
        """The places of everything that was written."""
        for tensor in self.tensors.values():
            yield from (chunk.item for chunk in tensor.chunks)
        yield from self.values.values()


def saved_state(value: Any) -> SavedState:
    """Parse the value of `.metadata`."""
    state = _attributes(value, "Metadata")
    places = dict(_places(_dict(state.get("storage_data"), "storage_data")))
    tensors: dict[str, ChunkedTensor] = {}
    values: dict[str, Item] = {}
    n_chunks = 0
    for name, saved in _dict(state.get("state_dict_metadata"), "state_dict_metadata").items():
        if type(name) is not str:
            _refuse("a name", name)
        if _class_of(saved) == "BytesStorageMetadata":
            values[name] = _place(places, name, None)
            continue
        attributes = _attributes(saved, "TensorStorageMetadata")
        chunks = attributes.get("chunks")
        if type(chunks) is not list:
            _refuse(f"the chunks of `{name}`", chunks)
        n_chunks += len(chunks)
        if n_chunks > _OFFERED + 2 * len(places):
            raise LimitError("far more chunks than records of where they were written", tensor=name)
        tensors[name] = _tensor(name, attributes, chunks, places)
    return SavedState(tensors, values, _paths(state.get("planner_data")))


def merged(states: list[SavedState]) -> SavedState:
    """Merge the metadata of ranks that saved without communicating."""
    tensors: dict[str, ChunkedTensor] = {}
    for state in states:
        for name, tensor in state.tensors.items():
            known = tensors.get(name)
            if known is None:
                tensors[name] = tensor
            elif (known.dtype, known.shape) != (tensor.dtype, tensor.shape):
                raise PickleError(
                    f"two ranks saved tensor `{name}` with different dtypes or shapes",
                    tensor=name,
                    expected=f"{known.dtype} {list(known.shape)}",
                    found=f"{tensor.dtype} {list(tensor.shape)}",
                )
            else:
                tensors[name] = ChunkedTensor(known.dtype, known.shape, (*known.chunks, *tensor.chunks))
    return SavedState(
        tensors,
        {name: item for state in states for name, item in state.values.items()},
        {name: path for state in states for name, path in state.paths.items()},
    )


def _tensor(name: str, attributes: Mapping[str, Any], chunks: list[Any], places: Mapping[Any, Item]) -> ChunkedTensor:
    dtype = _dtype(name, attributes.get("properties"))
    shape = _counts(name, attributes.get("size"))
    found = []
    for chunk in chunks:
        parts = _attributes(chunk, "ChunkStorageMetadata")
        offsets, sizes = _counts(name, parts.get("offsets")), _counts(name, parts.get("sizes"))
        if len(offsets) != len(shape) or len(sizes) != len(shape):
            _refuse(f"a chunk of `{name}`", (offsets, sizes))
        region = Region(offsets, tuple(map(sum, zip(offsets, sizes, strict=True))))
        if 0 in sizes and 0 not in shape:
            continue
        found.append(Chunk(_unpaired(region, dtype), _place(places, name, offsets)))
    return ChunkedTensor(dtype.name, _unpaired(Region((0,) * len(shape), shape), dtype).stops, tuple(found))


def _unpaired(region: Region, dtype: DType) -> Region:
    """Convert torch's count of bytes to elements, for dtypes that pack two elements into a byte."""
    if not dtype.is_packed or not region.stops:
        return region
    return Region((*region.starts[:-1], 2 * region.starts[-1]), (*region.stops[:-1], 2 * region.stops[-1]))


def _dtype(name: str, properties: Any) -> DType:
    state = properties.state if isinstance(properties, Unknown) else None
    label = state[0] if type(state) is tuple and state else None
    if type(label) is not Label or label not in _BY_TORCH:
        raise UnsupportedError(f"tensor `{name}` has an unknown dtype", tensor=name, found=short_repr(label))
    return _BY_TORCH[label]


def _counts(name: str, value: Any) -> tuple[int, ...]:
    if type(value) is not tuple or len(value) > MAX_NDIM or not all(type(n) is int and n >= 0 for n in value):
        _refuse(f"a size of `{name}`", value)
    if prod(n for n in value if n) > MAX_I64:
        raise LimitError(f"tensor `{name}` is too large", tensor=name)
    return value


def _places(storage: dict[Any, Any]) -> Iterator[tuple[Any, Item]]:
    """Yield the name and offsets of each part, and where it was written."""
    for index, info in storage.items():
        key, place = _attributes(index, "MetadataIndex"), _attributes(info, "_StorageInfo")
        name, offset = key.get("fqn"), key.get("offset")
        file, start, length = (place.get(part) for part in ("relative_path", "offset", "length"))
        if type(name) is not str or (offset is not None and type(offset) is not tuple):
            _refuse("the name of a part", name)
        if type(file) is not str or type(start) is not int or type(length) is not int or not 0 <= start <= MAX_I64:
            _refuse(f"the place of `{name}`", (file, start, length))
        if not 0 <= length <= MAX_I64 or not is_inside(file):
            _refuse(f"the place of `{name}`", (file, start, length))
        if place.get("transform_descriptors"):
            raise UnsupportedError(
                f"`{name}` was written through extensions, such as compression",
                tensor=name,
                found=short_repr(place["transform_descriptors"]),
            )
        yield (name, offset), Item(file, start, start + length)


def _place(places: Mapping[Any, Item], name: str, offsets: tuple[int, ...] | None) -> Item:
    item = places.get((name, offsets))
    if item is None:
        item = places.get((name, None))
    if item is None:
        where = "" if offsets is None else f" from {list(offsets)} on"
        raise PickleError(
            f"nothing says where `{name}`{where} was written",
            tensor=name,
            expected="a place for each part of each tensor",
            hint="Was the save interrupted? Save again, or use an older checkpoint",
        )
    return item


def _paths(planner_data: Any) -> dict[str, _Path]:
    """Return the paths of names; empty if another planner wrote something else here."""
    if type(planner_data) is not dict:
        return {}
    if not all(type(name) is str and _is_path(path) for name, path in planner_data.items()):
        return {}
    return dict(planner_data)


def _is_path(path: Any) -> bool:
    return (
        type(path) is tuple
        and 0 < len(path) <= MAX_STATE_DEPTH
        and type(path[0]) is str
        and all(type(part) is str or (type(part) is int and part >= 0) for part in path)
    )


def _class_of(value: Any) -> str | None:
    return value.name if isinstance(value, Unknown) else None


def _attributes(value: Any, name: str) -> Mapping[str, Any]:
    if _class_of(value) != name or type(value.state) is not dict:
        _refuse(f"a {name}", value)
    state: dict[str, Any] = value.state
    return state


def _dict(value: Any, name: str) -> dict[Any, Any]:
    if type(value) is not dict:
        _refuse(name, value)
    return value


def _refuse(what: str, found: Any) -> NoReturn:
    raise PickleError("not the .metadata of a distributed checkpoint", expected=what, found=short_repr(found))

"""Where everything in a file is, and all bytes before the data. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Final

import msgspec

from tensorkeep.dtypes import DType
from tensorkeep.errors import RefusedError
from tensorkeep.formats.hdf5._tree import ROOT, join
from tensorkeep.formats.hdf5.writing._messages import (
    MAX_NAME_NBYTES,
    dataset_messages,
    encoded_name,
    group_messages,
    heap_of,
    link,
    object_header,
    superblock,
    text_attribute,
)

_ALIGNMENT: Final = 64
_SUPERBLOCK_NBYTES: Final = 96
_TEXTS_PER_HEAP: Final = 1000

Attributes = Mapping[str, Mapping[str, str]]
"""Path of a group or dataset to its attributes by name."""


class Dataset(msgspec.Struct, frozen=True):
    """A dataset to write.

    Attributes:
        path: Its path, without a slash at the start.
        dtype: Its dtype.
        shape: Elements along each dimension.
        nbytes: Size of its elements, in bytes.
    """

    path: str
    dtype: DType
    shape: tuple[int, ...]
    nbytes: int


class FileLayout(msgspec.Struct, frozen=True):
    """What to write.

    Attributes:
        head: All bytes before the data.
        starts: Where the data of each dataset begins, in their order.
        nbytes: Size of the file, in bytes.
    """

    head: bytes
    starts: tuple[int, ...]
    nbytes: int


def name_problem(path: str) -> str | None:
    """Return why a dataset cannot have a path; None if it can."""
    if "\0" in path:
        return "it has a zero byte"
    if not all(path.split("/")):
        return "a part of it between slashes is empty"
    if max(len(part.encode()) for part in path.split("/")) > MAX_NAME_NBYTES:
        return "a part of it between slashes is too long"
    return "HDF5 takes a dot for the group itself" if "." in path.split("/") else None


def lay_out(datasets: Sequence[Dataset], attributes: Attributes, groups: Iterable[str] = ()) -> FileLayout:
    """Lay out a file, with groups for the datasets and further ones.

    Attributes of objects that are not in it become attributes of the root group.
    """
    objects = _Objects(datasets, groups)
    texts = _Texts(objects.paths, attributes)
    nowhere = _Places(dict.fromkeys(objects.paths, 0), {}, [0] * len(texts.heaps))
    sizes = [len(objects.header(path, nowhere, texts)) for path in objects.paths]  # whatever the addresses are
    *headers, heaps_start = accumulate(sizes, initial=_SUPERBLOCK_NBYTES)
    *heaps, head_nbytes = accumulate(map(len, texts.heaps), initial=heaps_start)
    *data, _ = accumulate((_aligned(each.nbytes) for each in datasets), initial=_aligned(head_nbytes))
    places = _Places(
        dict(zip(objects.paths, headers, strict=True)),
        {each.path: start for each, start in zip(datasets, data, strict=True)},
        heaps,
    )
    end = max([
        head_nbytes,
        *(start + each.nbytes for each, start in zip(datasets, data, strict=True) if each.nbytes),
    ])
    parts = [superblock(places.headers[ROOT], end)]
    parts += [objects.header(path, places, texts) for path in objects.paths]
    return FileLayout(b"".join([*parts, *texts.heaps]), tuple(data), end)


class _Places(msgspec.Struct, frozen=True):
    """Addresses in the file: of headers and data by path, and of heaps."""

    headers: Mapping[str, int]
    data: Mapping[str, int]
    heaps: Sequence[int]


class _Objects:
    """The groups and datasets of a file."""

    def __init__(self, datasets: Sequence[Dataset], groups: Iterable[str]) -> None:
        self._datasets = {dataset.path: dataset for dataset in datasets}
        self._entries: dict[str, dict[str, str]] = {ROOT: {}}
        for group in groups:
            self._add_group(group)
        for dataset in datasets:
            group, _, last = dataset.path.rpartition("/")
            self._entries[self._add_group(group)][last] = dataset.path
        self.paths = (*self._entries, *self._datasets)
        for path in self._datasets.keys() & self._entries.keys():
            raise RefusedError(
                f"tensor `{path}` would be a folder of others",
                tensor=path,
                expected="names in which no tensor is inside another",
                hint="Rename one of them: rename= (--rename)",
            )

    def _add_group(self, path: str) -> str:
        """Add a group and those around it, and return its path."""
        group = ROOT
        for folder in path.split("/") if path else ():
            inner = join(group, folder)
            self._entries[group][folder] = inner
            self._entries.setdefault(inner, {})
            group = inner
        return group

    def header(self, path: str, places: _Places, texts: _Texts) -> bytes:
        """Return the header of an object."""
        dataset = self._datasets.get(path)
        if dataset is None:
            entries = self._entries[path].items()
            messages = group_messages()
            messages += [link(encoded_name(name), places.headers[inner]) for name, inner in entries]
        else:
            messages = dataset_messages(dataset.dtype, dataset.shape, places.data.get(path, 0), dataset.nbytes)
        return object_header([*messages, *texts.attributes(path, places.heaps)])


class _Texts:
    """The attributes, and the heaps that have their texts."""

    def __init__(self, paths: Iterable[str], attributes: Attributes) -> None:
        self._of: dict[str, list[tuple[bytes, bytes, int]]] = {path: [] for path in paths}
        texts: list[bytes] = []
        for path, named in attributes.items():
            is_there = path in self._of
            for name, text in named.items():
                own = name if is_there else f"{path}@{name}"
                self._of[path if is_there else ROOT].append((encoded_name(own), text.encode(), len(texts)))
                texts.append(text.encode())
        starts = range(0, len(texts), _TEXTS_PER_HEAP)
        self.heaps = [heap_of(texts[start : start + _TEXTS_PER_HEAP]) for start in starts]

    def attributes(self, path: str, heaps: Sequence[int]) -> Iterator[bytes]:
        """Yield the attributes of an object, given where the heaps are."""
        for name, text, place in self._of[path]:
            heap, number = divmod(place, _TEXTS_PER_HEAP)
            yield text_attribute(name, len(text), heaps[heap], number + 1)


def _aligned(nbytes: int) -> int:
    return -(-nbytes // _ALIGNMENT) * _ALIGNMENT

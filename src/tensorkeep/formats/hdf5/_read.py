"""The contents of an HDF5 file: names and places of its datasets, from headers alone; attributes when asked for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from tensorkeep.errors import LimitError
from tensorkeep.formats._attributes import attribute_text
from tensorkeep.formats._contents import FileContents, TensorPlace, UntypedTensor
from tensorkeep.formats._strings import StringArray
from tensorkeep.formats.hdf5._attributes import read_attributes
from tensorkeep.formats.hdf5._dataset import Datasets, Placed, typed_by_attribute
from tensorkeep.formats.hdf5._tree import ROOT, Tree, read_tree
from tensorkeep.formats.hdf5._unknown import UnknownObject
from tensorkeep.formats.hdf5.structures import Blocks, Dialect, ObjectHeader, find_superblock, parse_superblock
from tensorkeep.limits import MAX_HEADER_NBYTES
from tensorkeep.locks import ReadLock
from tensorkeep.transport import ByteSource

SUFFIXES: Final = (".h5", ".hdf5", ".hdf")
"""Suffixes of HDF5 files, in lower case."""


def is_hdf5(source: ByteSource) -> bool:
    """Say whether a file is one, perhaps after a block of the user's."""
    return Blocks(source).run(find_superblock(source.nbytes)) is not None


class Hdf5File:
    """An HDF5 file whose object headers have been read.

    Attributes:
        tree: Its groups and datasets by name.
        attributes: Name of a group or dataset (`/` is the root group) to its attributes by name: numbers, texts and
            tuples of them, or an `UnknownObject`. Read when the first one is asked for.
    """

    def __init__(self, source: ByteSource) -> None:
        blocks = Blocks(source)
        superblock = blocks.run(parse_superblock(source.nbytes))
        self._source = source
        self._dialect = superblock.dialect
        self.tree = blocks.run(read_tree(self._dialect, superblock.root))
        self.attributes: Mapping[str, Mapping[str, Any]] = Attributes(source, self._dialect, self.tree)

    def root_attributes(self) -> dict[str, Any]:
        """Read the attributes of the root group, and no others; none if it is unknown."""
        root = self.tree.groups.get(ROOT)
        return {} if root is None else Blocks(self._source).run(read_attributes(self._dialect, [root]))[0]

    def raw_attributes(self) -> dict[str, dict[str, Any]]:
        """Read the attributes of all groups and datasets, with texts as the bytes that are stored."""
        headers = self.tree.groups | self.tree.datasets
        found = Blocks(self._source).run(read_attributes(self._dialect, list(headers.values()), bytes))
        return dict(zip(headers, found, strict=True))

    def contents(self) -> FileContents:
        """Return where the tensors are."""
        datasets = Datasets(self._dialect, self._source)
        tensors: dict[str, TensorPlace] = {}
        strings: dict[str, StringArray] = {}
        unknowns: dict[str, Any] = dict(self.tree.unknowns)
        untyped: dict[str, UntypedTensor] = {}
        by_address: dict[int, Placed] = {}
        for name, header in self.tree.datasets.items():
            placed = by_address.get(header.address)
            if placed is None:  # else it is another name of a dataset
                placed = by_address[header.address] = datasets.place(name, header)
            if isinstance(placed, TensorPlace):
                tensors[name] = placed
            elif isinstance(placed, UntypedTensor):
                untyped[name] = placed
            elif isinstance(placed, StringArray):
                strings[name] = placed
            else:
                unknowns[name] = placed
        for name, tensor in untyped.items():
            typed = typed_by_attribute(name, tensor, dict(self.attributes[name]))
            if isinstance(typed, TensorPlace):
                tensors[name] = typed
            else:
                unknowns[name] = typed
        ordered = {name: tensors[name] for name in self.tree.datasets if name in tensors} if untyped else tensors
        return FileContents(ordered, AttributeTexts(self.attributes), self.attributes, unknowns, strings)


class Attributes(Mapping[str, Mapping[str, Any]]):
    """Name of a group or dataset to its attributes, all read together when the first one is asked for."""

    def __init__(self, source: ByteSource, dialect: Dialect, tree: Tree) -> None:
        self._source = source
        self._dialect = dialect
        self._headers: dict[str, ObjectHeader] = tree.groups | tree.datasets
        self._found: dict[str, dict[str, Any]] | None = None
        self._lock = ReadLock()

    def _read(self) -> dict[str, dict[str, Any]]:
        with self._lock:
            if self._found is None:
                names = {header.address: header for header in self._headers.values()}
                found = Blocks(self._source).run(read_attributes(self._dialect, list(names.values())))
                by_address = dict(zip(names, found, strict=True))
                self._found = {name: by_address[header.address] for name, header in self._headers.items()}
            return self._found

    def __getitem__(self, name: str) -> Mapping[str, Any]:
        return self._read()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._headers)

    def __len__(self) -> int:
        return len(self._headers)


class AttributeTexts(Mapping[str, str]):
    """All attributes as texts: `name` of the root group, `path@name` of other objects; JSON unless they are texts."""

    def __init__(self, attributes: Mapping[str, Mapping[str, Any]]) -> None:
        self._attributes = attributes
        self._texts: dict[str, str] | None = None

    def _read(self) -> dict[str, str]:
        if self._texts is None:
            self._texts = {}
            n_left = MAX_HEADER_NBYTES
            for path, attributes in self._attributes.items():
                for name, value in attributes.items():
                    text = attribute_text(str(value) if isinstance(value, (complex, UnknownObject)) else value)
                    n_left -= len(text)
                    if n_left < 0:
                        raise LimitError(
                            "the attributes of the file are too long",
                            expected=f"at most {MAX_HEADER_NBYTES:,} characters",
                        )
                    self._texts[name if path == ROOT else f"{path}@{name}"] = text
        return self._texts

    def __getitem__(self, name: str) -> str:
        return self._read()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._read())

    def __len__(self) -> int:
        return len(self._read())


def parse_hdf5(source: ByteSource) -> FileContents:
    """Read the headers of all datasets of a file."""
    return Hdf5File(source).contents()

"""One dataset by its path, from the headers and nodes on the way to it: the rest of the file is not read."""

from __future__ import annotations

from functools import cached_property

from tensorkeep.formats._contents import TensorPlace
from tensorkeep.formats.hdf5._attributes import read_attributes
from tensorkeep.formats.hdf5._dataset import Datasets
from tensorkeep.formats.hdf5.structures import (
    LAYOUT,
    Blocks,
    Link,
    ObjectHeader,
    holds_links,
    parse_superblock,
    read_links,
    read_object,
)
from tensorkeep.transport import ByteSource


class Hdf5Search:
    """Finds what `Hdf5File` lists, under the same names."""

    def __init__(self, source: ByteSource) -> None:
        self._blocks = Blocks(source)
        superblock = self._blocks.run(parse_superblock(source.nbytes))
        self._dialect = superblock.dialect
        self._datasets = Datasets(superblock.dialect, source)
        self.root = self._blocks.run(read_object(superblock.dialect, superblock.root))

    @cached_property
    def root_attributes(self) -> frozenset[str]:
        """Names of the attributes of the root group."""
        return frozenset(self._blocks.run(read_attributes(self._dialect, [self.root]))[0])

    def link(self, group: ObjectHeader, name: str) -> Link | None:
        """Return the link of a group that has a name."""
        links = self._blocks.run(read_links(self._dialect, group, name))
        return next((link for link in links if link.name == name), None)

    def way_to(self, path: str) -> list[ObjectHeader]:
        """Return the groups above a dataset and the dataset; empty if a link on the way is not the only one."""
        way, addresses = [self.root], {self.root.address}
        for name in path.split("/"):
            group = way[-1]
            if not holds_links(group) or (group.n_names != 1 and group is not self.root):
                return []
            link = self.link(group, name)
            if link is None or link.address is None or link.address in addresses:
                return []
            addresses.add(link.address)
            way.append(self._blocks.run(read_object(self._dialect, link.address)))
        return way if way[-1].find(LAYOUT) and not holds_links(way[-1]) else []

    def place(self, path: str, dataset: ObjectHeader) -> TensorPlace | None:
        """Return where the elements of a dataset are; None if they are not read as a tensor."""
        placed = self._datasets.place(path, dataset)
        return placed if isinstance(placed, TensorPlace) else None

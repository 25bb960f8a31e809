"""`FileSet`: several files of one checkpoint as one mapping of name to lazy tensor."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

from tensorkeep.errors import IntegrityError
from tensorkeep.formats import Description, StringArray
from tensorkeep.kinds.base._checks import Checks, combined, names_to_check
from tensorkeep.kinds.base._convertible import LeftOut, StoredView
from tensorkeep.kinds.base._opened import Opened
from tensorkeep.kinds.base._weight_map import refuse_disagreement
from tensorkeep.parallel import Progress
from tensorkeep.tensors import LazyTensor
from tensorkeep.texts import counted, listed
from tensorkeep.transport import ByteSource, split


class FileSet(Opened):
    """Several open files of one checkpoint. Each tensor has the name that it has in its file, and is in only one.

    `weight_map` is what an index says: the name of each tensor to the name of its file.
    """

    def __init__(self, path: str, files: Mapping[str, Opened], weight_map: Mapping[str, str] | None = None) -> None:
        self._path = path
        self._files = dict(files)
        self._file_of = {name: file for file, opened in files.items() for name in opened}
        if weight_map is not None:
            refuse_disagreement(path, files, weight_map)
        elif len(self._file_of) != sum(map(len, files.values())):
            twice = [name for file, opened in files.items() for name in opened if self._file_of[name] != file]
            raise IntegrityError("tensors are in two files", path=path, found=listed(f"`{name}`" for name in twice))

    @property
    def path(self) -> str:
        """Path of the index, or of the directory."""
        return self._path

    @property
    def files(self) -> Mapping[str, Opened]:
        """Name of each file to the open file."""
        return self._files

    @property
    def format_name(self) -> str:
        """The kind of these files, for people."""
        return next(iter(self._files.values())).format_name

    @property
    def sources(self) -> Mapping[str, ByteSource]:
        """Name of each file to its bytes."""
        return {name: source for name, file in self._files.items() for source in file.sources.values()}

    def shard_of(self, name: str) -> str:
        """Return the name of the file that holds a tensor."""
        self[name]
        return self._file_of[name]

    @property
    def has_metadata(self) -> bool:
        """Whether a file has metadata, even if empty."""
        return any(file.has_metadata for file in self._files.values())

    @property
    def metadata(self) -> dict[str, str]:
        """The metadata of all files together; of a key that is in several, the first file's text."""
        return {key: text for file in reversed(self._files.values()) for key, text in file.metadata.items()}

    @property
    def attributes(self) -> Mapping[str, Any]:
        """What headers say in types of their own; of a key that is in several, what the first file says."""
        return {key: value for file in reversed(self._files.values()) for key, value in file.attributes.items()}

    @property
    def strings(self) -> Mapping[str, StringArray]:
        """Name to array of strings, for those that the files hold beside tensors."""
        return {name: strings for file in self._files.values() for name, strings in file.strings.items()}

    @property
    def unknowns(self) -> Mapping[str, Any]:
        """Dotted name to each object that cannot be read."""
        return {name: unknown for file in self._files.values() for name, unknown in file.unknowns.items()}

    def left_out(self) -> list[LeftOut]:
        """Return the objects that a conversion would leave out."""
        return [found for file in self._files.values() for found in file.left_out()]

    def views(self) -> Mapping[str, StoredView]:
        """Return where tensors are stored, for those that may share bytes."""
        return {name: view for file in self._files.values() for name, view in file.views().items()}

    def refuse_expanded(self, names: Iterable[str]) -> None:
        """Refuse tensors much larger in total than their files, such as many views of a few bytes."""
        for file, own in self._by_file(names).items():
            self._files[file].refuse_expanded(own)

    def load(self, names: Iterable[str] | None = None, *, progress: Progress | None = None) -> dict[str, Any]:
        """Read whole tensors, each into its own memory, unless they take many times the size of their files."""
        names = None if names is None else [names] if isinstance(names, str) else list(names)
        self.refuse_expanded(self if names is None else [name for name in names if name in self])
        return super().load(names, progress=progress)

    @property
    def is_replaceable(self) -> bool:
        """Whether safetensors files can hold everything in these files, and so may replace them."""
        return all(file.is_replaceable for file in self._files.values())

    def checks(self, names: Iterable[str] | None = None) -> Checks:
        """Return the checksums in the files for some tensors or all."""
        chosen = self._by_file(self if names is None else names_to_check(names, self, self.path))
        return combined({file: self._files[file].checks(own) for file, own in chosen.items()})

    def _by_file(self, names: Iterable[str]) -> dict[str, list[str]]:
        """Return which of some tensors are in each file."""
        chosen: dict[str, list[str]] = {file: [] for file in self._files}
        for name in names:
            chosen[self._file_of[name]].append(name)
        return chosen

    def describe(self) -> Description:
        """Return the contents of all files."""
        described = [
            msgspec.structs.replace(each, file=name)
            for name, file in self._files.items()
            for each in file.describe().files
        ]
        return Description(tuple(described), split(self.path)[1])

    def _find(self, name: str) -> LazyTensor | None:
        file = self._file_of.get(name)
        return None if file is None else self._files[file][name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._file_of)

    def __len__(self) -> int:
        return len(self._file_of)

    def __contains__(self, name: object) -> bool:
        return name in self._file_of

    def close(self) -> None:
        """Close all files. Tensors that were read stay valid; lazy ones can no longer be read."""
        for file in self._files.values():
            file.close()

    def __repr__(self) -> str:
        extent = f"{counted(len(self), 'tensor')} in {counted(len(self._files), 'file')}"
        return f"{type(self).__name__}({self.path!r}, {extent}, {self.nbytes:,} bytes)"

r"""Formats that are a header and byte ranges: a parse function makes such a format a kind.

NPY = file_kind("a NumPy file", parse_npy, suffixes=(".npy",), magic=b"\x93NUMPY")
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, suppress
from functools import cached_property, partial
from itertools import starmap
from types import MappingProxyType
from typing import Any, Final

from tensorkeep.collector import PausedCollector
from tensorkeep.dtypes import ALL_BY_NAME, FOREIGN_DTYPES, DType, find_dtype
from tensorkeep.entries import TensorEntry
from tensorkeep.errors import (
    DtypeError,
    FormatError,
    RefusedError,
    TensorkeepError,
    TensorNotFoundError,
    TransportError,
    UnsafeError,
)
from tensorkeep.formats import (
    Checksum,
    Description,
    FileContents,
    FileDescription,
    Find,
    SearchedContents,
    StringArray,
    TensorPlace,
    UntypedTensor,
    attribute_texts,
    dense_nbytes,
)
from tensorkeep.kinds.base._checks import Check, Checks, names_to_check
from tensorkeep.kinds.base._kind import Files, Kind
from tensorkeep.kinds.base._opened import Opened
from tensorkeep.kinds.base._options import OpenOptions
from tensorkeep.kinds.base._place import Place
from tensorkeep.tensors import ChunkedReader, Layout, LazyTensor, StridedReader, TensorReader, c_strides, chosen_names
from tensorkeep.texts import counted
from tensorkeep.transport import ByteSource, split

_FOREIGN: Final = frozenset(dtype.name for dtype in FOREIGN_DTYPES)

Parse = Callable[[ByteSource], FileContents]
"""Reads the header of a file; `file_kind` adds the file's name to errors, and proves that all ranges are in it."""

ParseFiles = Callable[[Place, ExitStack], FileContents]
"""The same for a format with tensors in files of their own: opened ones are left to the stack."""

Search = Callable[[ByteSource], Find]
"""Begins a search for single tensors of a file; what it raises means that the file has to be parsed."""


class FlatFile(Opened):
    """An open file of any format whose tensors are byte ranges: a mapping of name to `LazyTensor`, in file order.

    Args:
        form: The kind of file, for people.
        source: The file.
        contents: What its header declares.
        options: How to read tensors.
    """

    def __init__(
        self, form: str, source: ByteSource, contents: FileContents | SearchedContents, options: OpenOptions
    ) -> None:
        self._form = form
        self._source = source
        self._contents = contents
        self._readers: dict[int, TensorReader] = {}
        self._options = options
        self._closed = False
        self._files = {source.name: split(source.name)[1]}
        self._files |= {other.name: file for file, other in contents.files.items()}

    @property
    def path(self) -> str:
        """The path, or a description of the source."""
        return self._source.name

    @property
    def sources(self) -> Mapping[str, ByteSource]:
        """The name of the file, and of others that hold its tensors, to their bytes."""
        return {split(self.path)[1]: self._source, **self._contents.files}

    def shard_of(self, name: str) -> str:
        """Return the name of the file that holds a tensor.

        Args:
            name: The tensor.

        Raises:
            TensorNotFoundError: If no tensor has that name.
        """
        self[name]
        return self._file_of(self._contents.tensors[name].source)

    def _file_of(self, source: ByteSource | None) -> str:
        return self._files[self.path if source is None or source.name not in self._files else source.name]

    @property
    def format_name(self) -> str:
        """The kind of file, for people."""
        return self._form

    @property
    def has_metadata(self) -> bool:
        """Whether there is metadata, even if empty."""
        return self._contents.metadata is not None or bool(self._contents.attributes)

    @property
    def metadata(self) -> dict[str, str]:
        """Free text by key, as a new dict; attributes as text if the format has these instead."""
        if self._contents.metadata is None:
            return attribute_texts(self._contents.attributes)
        return dict(self._contents.metadata)

    @property
    def attributes(self) -> Mapping[str, Any]:
        """What the header says in types of its own: numbers, bools, texts, bytes, and tuples of them."""
        return MappingProxyType(dict(self._contents.attributes))

    @property
    def unknowns(self) -> Mapping[str, Any]:
        """Dotted name to each object in the file that cannot be read."""
        return self._contents.unknowns

    @property
    def pickles(self) -> tuple[str, ...]:
        """Names of arrays or members that are pickles."""
        return self._contents.pickles

    @property
    def strings(self) -> Mapping[str, StringArray]:
        """Name to array of strings, for those in the file."""
        return self._contents.strings

    @property
    def is_replaceable(self) -> bool:
        """Whether a safetensors file can hold everything in this file, and so may replace it."""
        return not self._contents.unknowns and not self._contents.strings

    def with_dtypes(self, dtypes: Mapping[str, Any]) -> FlatFile:
        """Return the same file with dtypes for tensors that have none, such as `|V2` for bfloat16 in NumPy files.

        Args:
            dtypes: Name of a tensor in `unknowns`, or a shell pattern for several, to the dtype, such as
                `"bfloat16"`. Of patterns, the first that matches counts.

        Raises:
            DtypeError: If a dtype is unknown, or its elements have another size.
            TensorNotFoundError: If no tensor without a dtype has that name.
        """
        try:
            named = self._named_dtypes({pattern: find_dtype(dtype) for pattern, dtype in dtypes.items()})
            contents = self._contents.with_dtypes(named)
            contents.check_ranges(self._source)
        except (DtypeError, FormatError, TensorNotFoundError) as error:
            raise error.with_fields(path=self.path) from None
        return type(self)(self._form, self._source, contents, self._options)

    def _named_dtypes(self, dtypes: Mapping[str, DType]) -> dict[str, DType]:
        """Return the dtypes by the names of the tensors without one that patterns select."""
        untyped = [name for name, unknown in self.unknowns.items() if isinstance(unknown, UntypedTensor)]
        named: dict[str, DType] = {}
        for pattern, dtype in dtypes.items():
            for name in [pattern] if pattern in untyped else chosen_names(untyped, [pattern]) or [pattern]:
                named.setdefault(name, dtype)
        return named

    @cached_property
    def _own_reader(self) -> TensorReader:
        return self._reader(self._source)

    def _reader(self, source: ByteSource) -> TensorReader:
        if id(source) not in self._readers:  # one reader per source, so that its tensors are loaded together
            self._readers[id(source)] = TensorReader(source, 0, self._options.framework, self._options.device)
        return self._readers[id(source)]

    def _find(self, name: str) -> LazyTensor | None:
        if self._closed:
            raise TransportError("File is closed", path=self.path)
        place = self._contents.tensors.get(name)
        return None if place is None else self._lazy(name, place)

    def _pairs(self) -> Iterator[tuple[str, LazyTensor]]:
        if self._closed:
            raise TransportError("File is closed", path=self.path)
        return zip(self._contents.tensors, starmap(self._lazy, self._contents.tensors.items()), strict=True)

    def _lazy(self, name: str, place: TensorPlace) -> LazyTensor:
        """Return the lazy tensor of a place."""
        if place.is_simple and place.dtype not in _FOREIGN:
            nbytes = dense_nbytes(place.dtype, place.shape)
            if nbytes is not None:
                entry = TensorEntry(place.dtype, place.shape, (place.start, place.start + nbytes))
                return LazyTensor(name, entry, self._own_reader)
        return self._lazy_elsewhere(name, place)

    def _lazy_elsewhere(self, name: str, place: TensorPlace) -> LazyTensor:
        """Return the lazy tensor of a place that is not just bytes of the file, or has none."""
        entry = TensorEntry(place.dtype, place.shape, (place.start, _stop(place)))
        if place.chunks is not None:
            reader = ChunkedReader(place.chunks, self._options.framework, self._options.device)
            return LazyTensor(name, entry, reader)
        stored = self._reader(place.source or self._source)
        if _is_plain(place):
            return LazyTensor(name, entry, stored)
        strides = c_strides(place.shape) if place.strides is None else place.strides
        layout = Layout(place.start, strides, is_big_endian=place.is_big_endian)
        gathered = TensorEntry(place.dtype, place.shape, (0, _nbytes(place)))
        return LazyTensor(name, gathered, StridedReader(stored, layout))

    def __iter__(self) -> Iterator[str]:
        return iter(self._contents.tensors)

    def __len__(self) -> int:
        return len(self._contents.tensors)

    def __contains__(self, name: object) -> bool:
        return name in self._contents.tensors

    def checks(self, names: Iterable[str] | None = None) -> Checks:
        """Return the checksums in the file for some tensors or all."""
        chosen = list(self) if names is None else names_to_check(names, self, self.path)
        shared: dict[Checksum, tuple[str, list[str]]] = {}  # several tensors may share the checksum of a file
        n_checked = 0
        for name in chosen:
            sums = self._contents.tensors[name].checksums()
            n_checked += bool(sums)
            for place, sum_ in enumerate(sums):
                tensors = shared.setdefault(sum_, (name, []))[1]
                tensors += [name] if place == 0 else []
        checks = [self._check(sum_, name, len(tensors)) for sum_, (name, tensors) in shared.items()]
        return Checks(checks, n_unprotected=len(chosen) - n_checked, n_files=len(self.sources), n_tensors=len(self))

    def _check(self, sum_: Checksum, name: str, n_tensors: int) -> Check:
        """Return the check of a tensor, or of another file as a whole."""
        source = sum_.source or self._source
        file = self._file_of(source)
        is_whole = source is self._contents.files.get(file) and len(sum_.span) == source.nbytes
        tensor = None if is_whole else name
        return Check(file, tensor, source, sum_.span, sum_.algorithm, sum_.expected, n_tensors)

    def describe(self) -> Description:
        """Return the contents of the header, for `tensorkeep inspect`."""
        entries: dict[str, dict[str, TensorEntry]] = {file: {} for file in self.sources}
        for name, place in self._contents.tensors.items():
            entry = TensorEntry(place.dtype, place.shape, (place.start, _stop(place)))
            entries[self._file_of(place.source)][name] = entry
        (own, source), *others = self.sources.items()
        metadata = self.metadata if self.has_metadata else None
        first = FileDescription(own, source.nbytes, 0, entries[own], metadata, form=self._form)
        rest = [FileDescription(file, other.nbytes, 0, entries[file], form=self._form) for file, other in others]
        return Description((first, *rest), own if rest else None)

    def close(self) -> None:
        """Close the file. Tensors that were read stay valid; lazy ones can no longer be read."""
        self._closed = True
        for reader in self._readers.values():
            reader.close()
        for source in self.sources.values():
            source.close()

    def __repr__(self) -> str:
        extent = ""
        with suppress(TensorkeepError):  # closed or damaged
            extent = f", {counted(len(self), 'tensor')}, {self.nbytes:,} bytes"
        return f"FlatFile({self.path!r}, {self._form}{extent})"


def _nbytes(place: TensorPlace) -> int:
    """Return the size of a tensor when dense, even if strides repeat its elements."""
    n_elements = 1
    for extent in place.shape:
        n_elements *= extent
    dtype = ALL_BY_NAME.get(place.dtype)
    if dtype is None:
        return place.nbytes or 0
    return dtype.nbytes(n_elements)


def _stop(place: TensorPlace) -> int:
    return place.start + (_nbytes(place) if place.nbytes is None else place.nbytes)


def _is_plain(place: TensorPlace) -> bool:
    """Say whether the elements are as in a safetensors file; a dtype that nobody knows is not looked into."""
    if place.strides is None and not place.is_big_endian:
        return place.dtype not in _FOREIGN
    dtype = ALL_BY_NAME.get(place.dtype)
    strides = c_strides(place.shape) if place.strides is None else place.strides
    layout = Layout(place.start, strides, is_big_endian=place.is_big_endian)
    return dtype is None or layout.is_plain(dtype, place.shape)


def file_kind(
    name: str,
    parse: Parse,
    *,
    suffixes: tuple[str, ...],
    parse_files: ParseFiles | None = None,
    magic: bytes | None = None,
    is_one: Callable[[ByteSource], bool] | None = None,
    opens: type[FlatFile] = FlatFile,
    search: Search | None = None,
    only_tensors: bool = False,
    engines: tuple[str, ...] = (),
) -> Kind[Place]:
    """Make a `Kind` for a format that is a header and byte ranges.

    Args:
        name: What such a file is, for people: `"a GGUF file"`.
        parse: Reads a header.
        suffixes: Suffixes of such files, in lower case.
        parse_files: Reads a header and opens the files beside it that hold tensors; None if no tensor is elsewhere.
        magic: The first bytes of such files; None to go by the suffix.
        is_one: Looks closer at a file with these first bytes, if other kinds begin with them too.
        opens: The class of open files, if tensors are read in a special way.
        search: Finds single tensors, for a format whose index takes long to read; no tensor may be elsewhere.
        only_tensors: Whether no program would run anything in it, neither objects nor templates nor expressions, so
            that `scan` calls it clean if it opens and nothing in it is unknown.
        engines: Names of other libraries that `opens` can use if the caller asks for one.
    """

    def find(place: Place) -> Place | None:
        if place.is_directory:
            return None
        is_found = place.is_named(*suffixes) if magic is None else place.head.startswith(magic)
        return place if is_found and (is_one is None or is_one(place.source)) else None

    def read(place: Place, *, strict: bool = False) -> FileContents:
        source = place.source
        with ExitStack() as opened:
            try:
                with PausedCollector():
                    contents = parse(source) if parse_files is None else parse_files(place, opened)
                    contents.check_ranges(source)
            except (FormatError, RefusedError) as error:
                raise error if error.path is not None else error.with_fields(path=source.name) from None
            opened.pop_all()
        unread = contents.unread() if strict else {}
        if unread:
            texts = ", ".join(f"{unknown} at `{at}`" for at, unknown in unread.items())
            raise UnsafeError("objects that are not known to be data", path=source.name, found=texts)
        return contents

    def open_file(place: Place, options: OpenOptions) -> Opened:
        if search is not None and options.lazily and not options.strict:
            with suppress(TensorkeepError):
                found = SearchedContents(place.source, search(place.source), partial(read, place))
                return opens(name, place.source, found, options)
        return opens(name, place.source, read(place, strict=options.strict), options)

    def files(place: Place) -> Files:
        directory, own_name = split(place.path or "")
        if parse_files is None:
            return Files(directory, own_name, (own_name,))
        with open_file(place, OpenOptions()) as opened:
            return Files(directory, own_name, tuple(opened.sources), opens_alone=len(opened.sources) == 1)

    return Kind(name, find, open_file, files=files, suffixes=suffixes, only_tensors=only_tensors, engines=engines)

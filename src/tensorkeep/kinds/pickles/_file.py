"""A file of `torch.save` or `pickle.dump` as a mapping of dotted name to lazy tensor, and as its nested value."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from functools import cached_property
from typing import Any, Final

from tensorkeep.collector import PausedCollector
from tensorkeep.digests import CRC32
from tensorkeep.entries import TensorEntry
from tensorkeep.errors import TensorkeepError, TransportError
from tensorkeep.formats import Description, FileDescription
from tensorkeep.formats.pickles import (
    ArrayRecord,
    Form,
    PickleDocument,
    TensorRecord,
    Unknown,
)
from tensorkeep.kinds.base import (
    Check,
    Checks,
    LeftOut,
    LoadOptions,
    NestedData,
    StoredView,
    names_to_check,
    refuse_expansion,
)
from tensorkeep.kinds.pickles._data import is_of_pairs, nested_data
from tensorkeep.kinds.pickles._flat import Leaf, Leaves, leaves_of
from tensorkeep.kinds.pickles._load import arrays_as_tensors, part_of_value, whole_value
from tensorkeep.kinds.pickles._nested import Loadable, NestedPickles
from tensorkeep.kinds.pickles._records import (
    LazyRecords,
    is_tensor_like,
    stored_views,
    tensor_of,
)
from tensorkeep.kinds.pickles._select import NOTHING, selected
from tensorkeep.kinds.pickles._ties import copied_value, refuse_shared
from tensorkeep.kinds.pickles._tree import copy_tree
from tensorkeep.parallel import Progress
from tensorkeep.tensors import (
    LazyTensor,
    LazyTensors,
    Selector,
    TensorView,
    Ties,
)
from tensorkeep.texts import counted
from tensorkeep.transport import ByteSource, open_source, split

_FORMS: Final[dict[Form, str]] = {
    "zip": "PyTorch zip archive",
    "torchscript": "TorchScript archive",
    "legacy": "PyTorch stream of pickles, as before 1.6",
    "tar": "PyTorch tar archive, as before 0.1.12",
    "pickle": "pickle",
}
_ARCHIVES: Final = ("zip", "torchscript")


class PickleFile(NestedPickles):
    """An open pickle: a mapping of dotted name to `LazyTensor`. Nothing in it was run, and no tensor data were read.

    Names are those of a state dict: dict keys and list indices, joined with dots. Tensors that share memory in the
    file are read separately through this mapping; `load_tree` keeps them shared.
    """

    def __init__(self, document: PickleDocument, source: ByteSource, framework: str, device: Any) -> None:
        self._document = document
        self._source = source
        self._lazy = LazyRecords(document, source, framework, device)
        self._target = (framework, device)
        self._lazies: dict[str, LazyTensor] = {}
        self._closed = False

    def __reduce__(self) -> tuple[Any, ...]:
        """Raise TypeError: its value may hold objects that cannot be pickled."""
        raise TypeError("a PickleFile cannot be pickled; open the file again, or pickle one of its lazy tensors")

    @property
    def path(self) -> str:
        """The path, or a description of the source."""
        return self._source.name

    @property
    def form(self) -> Form:
        """The container: `"zip"`, `"torchscript"`, `"legacy"`, `"tar"`, or `"pickle"` for a bare pickle."""
        return self._document.form

    @property
    def source(self) -> ByteSource:
        """The source of the file's bytes."""
        return self._source

    @property
    def format_name(self) -> str:
        """The kind of file, for people."""
        return _FORMS[self.form]

    @property
    def sources(self) -> Mapping[str, ByteSource]:
        """The name of the file to its bytes."""
        return {split(self.path)[1]: self._source}

    @property
    def has_metadata(self) -> bool:
        """Whether text was saved beside the value, as Paddle does."""
        return bool(self._document.metadata)

    @property
    def metadata(self) -> dict[str, str]:
        """Free text by key, as a new dict."""
        return dict(self._document.metadata)

    @property
    def document(self) -> PickleDocument:
        """The parsed pickle: the value with records in place of tensors, and where storages are."""
        return self._document

    @cached_property
    def _leaves(self) -> Leaves:
        with PausedCollector():
            try:
                leaves = leaves_of(self._document.value)
            except TensorkeepError as error:
                raise error.with_fields(path=self.path) from None
        leaves.tensors = {name: record for name, record in leaves.tensors.items() if is_tensor_like(record)}
        return leaves

    @cached_property
    def tensors(self) -> Mapping[str, TensorRecord]:
        """Dotted name to the record of each tensor; a bare storage counts as a one-dimensional tensor.

        NumPy arrays, whose elements are in the pickle itself, are not included.
        """
        records = self._leaves.tensors.items()
        return {name: tensor_of(record) for name, record in records if not isinstance(record, ArrayRecord)}

    @property
    def records(self) -> Mapping[str, Leaf]:
        """Dotted name to the record of each tensor, storage and NumPy array."""
        return self._leaves.tensors

    @property
    def composites(self) -> dict[str, str]:
        """Dotted name to kind for each sparse, quantized or nested tensor, as a new dict."""
        return dict(self._leaves.composites)

    @property
    def empty(self) -> tuple[str, ...]:
        """Dotted names of tensors without data (device meta)."""
        return tuple(self._leaves.empty)

    @property
    def unknowns(self) -> dict[str, Unknown]:
        """Dotted name to each object that is not known to be data and was not built, as a new dict."""
        return dict(self._leaves.unknowns)

    @property
    def dangers(self) -> dict[str, str]:
        """Name to reason for each name that could only do harm, as a new dict; needs `dangerous="record"`."""
        return dict(self._document.dangers)

    @cached_property
    def tree(self) -> Any:
        """The saved value: nested plain data, with a `LazyTensor` for each tensor and an `Unknown` for each object.

        Sparse, quantized and nested tensors are a `CompositeRecord` of lazy parts; tensors without data are a
        `TensorRecord`; NumPy arrays are arrays.
        """
        with PausedCollector():
            return copy_tree(self._document.value, self._lazy.value)

    @property
    def outline(self) -> Any:
        """The saved value as `tree` has it, with lazy tensors in place of NumPy arrays."""
        with PausedCollector():
            return copy_tree(self._document.value, self._lazy.unread)

    def load_tree(
        self,
        only: Selector | Iterable[Selector] | None = None,
        *,
        ties: Ties = "share",
        progress: Progress | None = None,
    ) -> Any:
        """Load the saved value or a part of it: nested data with the framework's tensors.

        Tensors that shared memory share it again, and an object in two places is one object again. NumPy arrays stay
        NumPy arrays; `tensorkeep.load(path, framework="torch")` makes tensors of them as well. With torch, sparse,
        quantized and nested tensors are built after their parts have been checked; with NumPy they are a
        `CompositeRecord` of arrays.

        Args:
            only: Which parts to load: shell patterns for dotted names (`*` crosses dots), or predicates on a name;
                None loads everything. In dicts, other entries are missing; in lists and tuples, they are None. Only
                the memory that the chosen tensors cover is read.
            ties: What to do with tensors that shared memory: `"share"` it again, `"copy"` it for each, or raise an
                `"error"`. Lists and dicts in two places stay one in any case.
            progress: Called with the bytes loaded so far and the total.

        Returns:
            The nested value. Tensors are writable, and writing to them never changes the file.

        Raises:
            TensorNotFoundError: If `only` matches nothing.
            TypeError: If `only` is neither text, nor callable, nor an iterable of these.
            DtypeError: If the framework does not have a dtype.
            FormatError: If the parts of a sparse, quantized or nested tensor do not fit together.
            LimitError: If tuples are nested too deeply, a tensor has more dimensions or elements than the framework
                allows, or copies would take many times the size of the file.
            SharedMemoryError: If tensors share memory and `ties` is `"error"`.
            TransportError: If the bytes cannot be read, or the file is closed.
        """
        return self.load_state(LoadOptions(only, ties=ties, progress=progress))

    def value_to_load(
        self, wanted: Callable[[str], bool] | None, name: str = "", *, ties: Ties, with_arrays: bool
    ) -> Loadable | None:
        """Return the saved value, itself called `name`, or its part whose names are wanted; None if none is."""
        self._check_open()
        document, reader = self._document, self._lazy.reader
        try:
            part = document.value if wanted is None else selected(document.value, wanted, name)
            if part is NOTHING:
                return None
            if ties == "error":
                refuse_shared(part, self.path)
            arrays = arrays_as_tensors(part, self._lazy) if with_arrays else {}
            if ties == "copy":
                copied = copied_value(part, self._lazy, arrays)
                self._refuse_nbytes(copied.nbytes)
                return copied
            if wanted is None:
                return whole_value(document, reader, arrays)
            return part_of_value(document, reader, part, arrays)
        except TensorkeepError as error:
            raise error.with_fields(path=self.path) from None

    def load(self, names: Iterable[str] | None = None, *, progress: Progress | None = None) -> dict[str, Any]:
        """Read whole tensors, each into its own memory; see `LazyTensors.load`. `load_tree` keeps memory shared.

        Raises:
            LimitError: If the tensors would take many times the size of the file, as many views of a few bytes can.
        """
        names = None if names is None else [names] if isinstance(names, str) else list(names)
        self.refuse_expanded(self if names is None else names)
        return super().load(names, progress=progress)

    def refuse_expanded(self, names: Iterable[str]) -> None:
        """Refuse tensors much larger in total than the file, such as many views of a few bytes.

        Args:
            names: The tensors to be read.

        Raises:
            LimitError: If they would take many times the size of the file.
            TensorNotFoundError: If a name is not in the file.
        """
        self._refuse_nbytes(sum(self[name].nbytes for name in names))

    def _refuse_nbytes(self, nbytes: int) -> None:
        hint = "load_tree keeps the memory shared; or select fewer tensors"
        refuse_expansion(nbytes, self._source.nbytes, self.path, hint)

    def checks(self, names: Iterable[str] | None = None) -> Checks:
        """Return the CRC-32 checks of storages in torch's archives; torch itself never checks them."""
        chosen = list(self) if names is None else names_to_check(names, self, self.path)
        crcs, spans = self._document.crcs, self._document.spans
        by_storage: dict[str, list[str]] = {}
        n_unprotected = 0
        for name in chosen:
            record = self.tensors.get(name)
            if record is None:  # a NumPy array, which lies in the pickle; archives have a sum of that
                n_unprotected += self.form not in _ARCHIVES
                continue
            if record.storage is None or record.storage.key not in crcs:
                n_unprotected += 1
            else:
                by_storage.setdefault(record.storage.key, []).append(name)
        file = split(self.path)[1]
        checks = [
            Check(file, views[0], self._source, spans[key], CRC32, crcs[key].to_bytes(4, "big"), len(views))
            for key, views in by_storage.items()
        ]
        n_checked = len(chosen) - n_unprotected - sum(check.n_tensors for check in checks)
        return Checks(checks, (), n_unprotected, n_checked, n_files=1, n_tensors=len(self))

    def left_out(self) -> list[LeftOut]:
        """Return the objects that are not known to be data."""
        unknowns = self.unknowns.items()
        return [LeftOut(name, self.path, unknown.qualified_name, is_run=True) for name, unknown in unknowns]

    def views(self) -> Mapping[str, StoredView]:
        """Return where each tensor is stored."""
        return stored_views(self.path, self._document, self.tensors, self.records)

    def nested(self) -> NestedData | None:
        """Return the saved value as data."""
        return nested_data(self._document.value, self.records, self.pairs())

    def pairs(self) -> dict[str, LazyTensor]:
        """Return complex tensors as real ones: a last dimension of 2 holds the real and imaginary parts."""
        return {name: self.pairs_of(name) for name, tensor in self.tensors.items() if is_of_pairs(tensor)}

    def pairs_of(self, name: str) -> LazyTensor:
        """Return a complex tensor as a real one: a last dimension of 2 holds the real and imaginary parts.

        Args:
            name: Its name.

        Raises:
            KeyError: If no tensor has that name.
        """
        return self._lazy.pairs(name, self.tensors[name])

    def over(self, source: ByteSource) -> PickleFile:
        """Return the same file over another source of its bytes; the pickle is not parsed again."""
        return PickleFile(self._document, source, *self._target)

    def unmapped(self, files: ExitStack) -> LazyTensors:
        """Return the tensors without mmap where they are gathered: every page touched would stay in memory."""
        gathered = [name for name, lazy in self.items() if lazy.source is None]
        if not gathered:
            return self
        read = self.over(open_source(self.path, backend="pread"))
        files.callback(read.close)
        return TensorView({**self, **{name: read[name] for name in gathered}}, path=self.path)

    def describe(self) -> Description:
        """Return the contents of the file, with tensors in byte order."""
        return Description((self.described(),))

    def described(self, name: str | None = None, prefix: str = "") -> FileDescription:
        """Return the same for one file of several, with its name and the prefix of its tensors' names."""
        in_order = sorted(self.items(), key=lambda item: item[1].data_offsets)
        return FileDescription(
            name or split(self.path)[1],
            self._source.nbytes,
            0,
            {prefix + own: TensorEntry(lazy.dtype, lazy.shape, lazy.data_offsets) for own, lazy in in_order},
            metadata=self.metadata or None,
            form=self.format_name,
            dangers=self.dangers,
        )

    def _find(self, name: str) -> LazyTensor | None:
        self._check_open()
        found = self._lazies.get(name)
        if found is None and name in self._leaves.tensors:
            found = self._lazies[name] = self._lazy.lazy(name, self._leaves.tensors[name])
        return found

    def _pairs(self) -> Iterator[tuple[str, LazyTensor]]:
        self._check_open()
        lazies, lazy = self._lazies, self._lazy.lazy
        for name, record in self._leaves.tensors.items():
            found = lazies.get(name)
            if found is None:
                found = lazies[name] = lazy(name, record)
            yield name, found

    def __iter__(self) -> Iterator[str]:
        return iter(self._leaves.tensors)

    def __len__(self) -> int:
        return len(self._leaves.tensors)

    def __contains__(self, name: object) -> bool:
        return name in self._leaves.tensors

    def _check_open(self) -> None:
        if self._closed:
            raise TransportError("File is closed", path=self.path)

    def close(self) -> None:
        """Close the file. Tensors that were read stay valid; lazy ones can no longer be read."""
        self._closed = True
        self._lazy.reader.close()

    def __repr__(self) -> str:
        unknown = f", {len(self.unknowns):,} not known to be data" if self._leaves.unknowns else ""
        extent = f"{counted(len(self), 'tensor')}, {self.nbytes:,} bytes{unknown}"
        return f"PickleFile({self.path!r}, {self.form}, {extent})"

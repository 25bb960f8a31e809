"""The arrays of one item, read by tensorkeep itself."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Final

from tensorkeep.errors import FormatError, LimitError, TensorkeepError, UnsupportedError
from tensorkeep.formats.zarr import ARRAY_KEYS, ArrayLayout, ZarrChunks, parse_zarr
from tensorkeep.kinds.base import OpenOptions
from tensorkeep.kinds.orbax._database_store import DatabaseStore
from tensorkeep.kinds.orbax._folder_store import FolderStore
from tensorkeep.kinds.orbax._links import refuse_outside
from tensorkeep.kinds.orbax._served_store import ServedStore
from tensorkeep.limits import MAX_HEADER_NBYTES
from tensorkeep.tensors import ChunkedReader

_N_READ_AT_ONCE: Final = 4096
_MAX_DESCRIPTION_NBYTES: Final = 2**20

Store = DatabaseStore | FolderStore | ServedStore


class StoredArrays:
    """See `Arrays`."""

    def __init__(self, store: Store, *, is_zarr3: bool, is_complete: bool, nbytes: int) -> None:
        self.directory = store.source.name
        self.nbytes = nbytes
        self._store = store
        self._is_zarr3 = is_zarr3
        self._is_complete = is_complete
        self._suffix = f"/{ARRAY_KEYS[3 if is_zarr3 else 2]}"

    @property
    def file_names(self) -> list[str]:
        """The files that hold the arrays, as paths below the directory."""
        return self._store.file_names

    def names(self) -> list[str]:
        """Return the names of all arrays, for old checkpoints without a list of them."""
        return sorted(self._store.names_with(self._suffix))

    def layouts(self, names: Sequence[str]) -> list[ArrayLayout]:
        """Return what some arrays are, read many at a time."""
        refuse_outside(names, self.directory)
        found: list[ArrayLayout] = []
        for begin in range(0, len(names), _N_READ_AT_ONCE):
            batch = names[begin : begin + _N_READ_AT_ONCE]
            for name, data in zip(batch, self._descriptions(batch), strict=True):
                try:
                    found.append(parse_zarr(data, is_zarr3=self._is_zarr3))
                except TensorkeepError as error:
                    raise error.with_fields(path=self.directory, tensor=name) from None
                self._refuse_unread(name, found[-1])
        return found

    def _descriptions(self, names: Sequence[str]) -> list[bytes]:
        spans = []
        self._store.look_up(name + self._suffix for name in names)
        for name in names:
            span = self._store.find(name + self._suffix)
            if span is None:
                raise FormatError(
                    "the array is missing", path=self.directory, tensor=name, expected=name + self._suffix
                )
            if len(span) > _MAX_DESCRIPTION_NBYTES:
                raise LimitError("the description of an array is too long", path=self.directory, tensor=name)
            spans.append(span)
        if sum(map(len, spans)) > MAX_HEADER_NBYTES:
            raise LimitError("the descriptions of arrays are too long", path=self.directory)
        data = [bytearray(len(span)) for span in spans]
        self._store.source.read_into((span.start, memoryview(into)) for span, into in zip(spans, data, strict=True))
        return list(map(bytes, data))

    def _refuse_unread(self, name: str, layout: ArrayLayout) -> None:
        if layout.coding.unread is not None:
            raise UnsupportedError(
                f"array `{name}` has {layout.coding.unread}, which tensorkeep does not read",
                path=self.directory,
                tensor=name,
                hint='If you trust the files, pass engine="tensorstore" (--engine tensorstore)',
            )

    def reader(self, name: str, layout: ArrayLayout, options: OpenOptions) -> ChunkedReader:
        """Return the reader of an array."""
        return ChunkedReader(self._chunks(name, layout), options.framework, options.device)

    def _chunks(self, name: str, layout: ArrayLayout) -> ZarrChunks:
        return ZarrChunks(self._store, name, layout, is_complete=self._is_complete)

    def is_checked(self, name: str, layout: ArrayLayout) -> bool:
        """Say whether all values of an array are within nodes of a database, whose checksums were right."""
        spans = map(self._store.find, islice(self._chunks(name, layout).keys(), self._store.n_keys))
        return all(span is not None and self._store.is_checked(span) for span in spans)

    def close(self) -> None:
        """Close all files."""
        self._store.source.close()

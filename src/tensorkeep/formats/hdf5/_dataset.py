"""The tensor of a dataset, by the messages of its header. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod
from typing import Any, Final, TypeVar

from tensorkeep.dtypes import find_dtype
from tensorkeep.errors import DtypeError, FormatError, UnsupportedError
from tensorkeep.formats._contents import TensorPlace, UntypedTensor, WithoutElements
from tensorkeep.formats._strings import StringArray
from tensorkeep.formats.hdf5._dataspace import Dataspace, parse_dataspace
from tensorkeep.formats.hdf5._datatype import Datatype, parse_datatype
from tensorkeep.formats.hdf5._layout import (
    Chunked,
    Compact,
    Contiguous,
    Layout,
    Virtual,
    parse_fill_value,
    parse_layout,
    parse_old_fill_value,
)
from tensorkeep.formats.hdf5._strings import strings_of
from tensorkeep.formats.hdf5._unknown import OTHER_READERS, READERS_WITH_PLUGIN, UnknownObject
from tensorkeep.formats.hdf5.chunks import ChunkedDataset, Filter, Hdf5Chunks, parse_filters, unknown_filters
from tensorkeep.formats.hdf5.structures import (
    DATASPACE,
    DATATYPE,
    EXTERNAL_FILES,
    FILL_VALUE,
    FILTERS,
    LAYOUT,
    OLD_FILL_VALUE,
    Dialect,
    ObjectHeader,
)
from tensorkeep.transport import ByteSource

_T = TypeVar("_T")

_TEXTS: Final = frozenset(("text", "long text"))

Placed = TensorPlace | UntypedTensor | StringArray | UnknownObject | WithoutElements


class Datasets:
    """Turns the headers of one file's datasets into tensors. Messages with the same bytes are parsed once."""

    def __init__(self, dialect: Dialect, source: ByteSource) -> None:
        self._dialect = dialect
        self._source = source
        self._parsed: dict[tuple[Any, bytes], Any] = {}

    def place(self, name: str, header: ObjectHeader) -> Placed:
        """Return where the elements of a dataset are, or why they are not read."""
        try:
            return self._place(name, header)
        except UnsupportedError as error:
            found = f": {error.found}" if error.found else ""
            return UnknownObject(f"{error.message}{found}", OTHER_READERS, "what HDF5 would do for it is not known")
        except FormatError as error:
            raise error.with_fields(tensor=name) from None

    def _place(self, name: str, header: ObjectHeader) -> Placed:
        datatype = self._parse(header, DATATYPE, parse_datatype)
        space = self._parse(header, DATASPACE, self._parse_dataspace)
        layout_message = header.find(LAYOUT)
        if datatype is None or space is None or layout_message is None:
            raise FormatError("a dataset has no datatype, no shape, or no layout")
        layout = parse_layout(self._dialect, layout_message.data)
        filters = self._parse(header, FILTERS, parse_filters) or ()
        unknown = _unknown(header, datatype, space, layout, filters)
        if unknown is not None:
            return unknown
        place = self._in_file(name, header, datatype, space, layout, filters, layout_message.start)
        if datatype.form == "number":
            return place
        if datatype.form in _TEXTS:
            return strings_of(name, self._dialect, self._source, datatype, space.shape or (), place)
        return UntypedTensor(datatype.what, datatype.nbytes, place)

    def _in_file(
        self,
        name: str,
        header: ObjectHeader,
        datatype: Datatype,
        space: Dataspace,
        layout: Layout,
        filters: tuple[Filter, ...],
        layout_start: int,
    ) -> TensorPlace:
        extents = space.shape or ()
        shape = extents + datatype.shape
        nbytes = prod(extents) * datatype.nbytes
        dtype = datatype.dtype or f"|V{datatype.nbytes}"
        nothing = None if datatype.dtype else nbytes
        if not nbytes:
            return TensorPlace(dtype, shape, 0, nothing)
        if isinstance(layout, (Compact, Contiguous)) and (layout.nbytes is not None and layout.nbytes < nbytes):
            raise FormatError(
                "a dataset takes fewer bytes than its shape", expected=f"{nbytes:,} bytes", found=f"{layout.nbytes:,}"
            )
        start = None
        if isinstance(layout, Compact):
            start = layout_start + layout.start
        elif isinstance(layout, Contiguous) and layout.address is not None:
            start = self._dialect.span(layout.address, nbytes).start
        if start is not None:
            return TensorPlace(dtype, shape, start, nothing, is_big_endian=datatype.is_big_endian)
        chunked = layout if isinstance(layout, Chunked) else None
        if chunked and (len(chunked.shape) != len(extents) or chunked.itemsize != datatype.nbytes):
            raise FormatError("a dataset has chunks of another shape or dtype", found=f"{chunked.shape!r:.100}")
        dataset = ChunkedDataset(
            name,
            self._dialect,
            chunked,
            extents,
            space.most,
            datatype.shape,
            datatype.nbytes,
            filters,
            self._fill_value(header, datatype),
            datatype.is_big_endian,
        )
        return TensorPlace(dtype, shape, 0, nothing, chunks=Hdf5Chunks(self._source, dataset))

    def _fill_value(self, header: ObjectHeader, datatype: Datatype) -> bytes:
        fill = self._parse(header, FILL_VALUE, parse_fill_value)
        if not fill:
            fill = self._parse(header, OLD_FILL_VALUE, parse_old_fill_value) or b""
        if len(fill) not in {0, datatype.nbytes}:
            raise FormatError("a fill value has another size than an element", found=f"{len(fill)} bytes")
        return fill if any(fill) else b""

    def _parse_dataspace(self, data: bytes) -> Dataspace:
        return parse_dataspace(data, self._dialect.length_nbytes)

    def _parse(self, header: ObjectHeader, kind: int, parse: Callable[[bytes], _T]) -> _T | None:
        message = header.find(kind)
        if message is None:
            return None
        key = kind, message.data
        if key not in self._parsed:
            self._parsed[key] = parse(message.data)
        found: _T = self._parsed[key]
        return found


def _unknown(
    header: ObjectHeader, datatype: Datatype, space: Dataspace, layout: Layout, filters: tuple[Filter, ...]
) -> UnknownObject | WithoutElements | None:
    """Say why a dataset is not a tensor; None if it is one."""
    if header.find(EXTERNAL_FILES):
        return UnknownObject(f"{datatype.what} in other files", "not looked for", "HDF5 reads files that it names")
    if isinstance(layout, Virtual):
        return UnknownObject("parts of other datasets", "not looked for", "HDF5 reads files that it names")
    unknown = unknown_filters(filters) if isinstance(layout, Chunked) else []
    if unknown:
        names = ", ".join(each.name for each in unknown)
        plugins = ", ".join(each.name for each in unknown if each.is_plugin)
        deed = f"HDF5 loads a plugin from outside to undo {plugins}" if plugins else ""
        reason = READERS_WITH_PLUGIN if plugins else OTHER_READERS
        return UnknownObject(f"{datatype.what} behind filters that are not known here: {names}", reason, deed)
    if space.shape is None:
        return WithoutElements("a dataset without elements (its dataspace is null)")
    if datatype.form not in {"number", "opaque", *_TEXTS}:
        return UnknownObject(datatype.what)
    return None


def typed_by_attribute(name: str, tensor: UntypedTensor, attributes: Mapping[str, Any]) -> Placed:
    """Return bytes without a dtype as the tensor that their attribute `dtype` makes of them, as Keras does."""
    spelling = attributes.get("dtype")
    if not isinstance(spelling, str):
        return tensor
    try:
        return tensor.typed(name, find_dtype(spelling))
    except DtypeError:
        return tensor

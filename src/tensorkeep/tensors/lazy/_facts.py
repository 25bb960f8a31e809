"""What is known of a tensor in a file before any of its elements is read."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any, Final

from tensorkeep.entries import TensorEntry
from tensorkeep.errors import SelectionError
from tensorkeep.tensors.indexing import Selection, parse_index
from tensorkeep.tensors.readers import Reader, reads_blocks
from tensorkeep.transport import ByteRange, ByteSource

_NO_MARKS: Final[Mapping[str, Any]] = {}


class TensorFacts:
    """The base of `LazyTensor`: its entry, and a reader of its elements; `LazyTensor` says what the fields are."""

    __slots__ = ("_digest", "_entry", "_reader", "library", "marks", "name")

    def __init__(
        self,
        name: str,
        entry: TensorEntry,
        reader: Reader,
        digest: bytes | None = None,
        *,
        library: str | None = None,
        marks: Mapping[str, Any] = _NO_MARKS,
    ) -> None:
        self.library = library
        self.marks = marks
        self.name = name
        self._entry = entry
        self._reader = reader
        self._digest = digest

    @property
    def entry(self) -> TensorEntry:
        """Its entry in the file's header: dtype, shape, place. A cast does not change it."""
        return self._entry

    @property
    def reader(self) -> Reader:
        """Reads its elements. Tensors of one file have equal readers, which can be keys of a dict."""
        return self._reader

    @property
    def dtype(self) -> str:
        """Its element type by the name in the format, such as `"BF16"`, after any `cast`."""
        cast_to = self._reader.cast_to
        return self._entry.dtype if cast_to is None else cast_to.name

    @property
    def is_floating_point(self) -> bool:
        """Whether elements are real floating-point numbers: F64 to F4; not complex numbers."""
        dtype = self._reader.cast_to or self._entry.known_dtype
        return dtype is not None and dtype.is_float

    @property
    def is_quantized(self) -> bool:
        """Whether elements are blocks of quantized numbers, which `dequantize` gives and `raw` leaves as they are."""
        return reads_blocks(self._reader)

    @property
    def shape(self) -> tuple[int, ...]:
        """Elements along each dimension; F4 and F6 elements are counted one by one."""
        return self._entry.shape

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self._entry.shape)

    @property
    def n_elements(self) -> int:
        """Number of elements."""
        return prod(self._entry.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of all elements in the file; after a `cast`, the bytes that they would take."""
        cast_to = self._reader.cast_to
        return self._entry.nbytes if cast_to is None else cast_to.nbytes(self.n_elements)

    @property
    def data_offsets(self) -> tuple[int, int]:
        """Half-open range of bytes, counted from the start of the file's data; a `cast` does not change it.

        The bytes of a view with gaps, or of a tensor in several pieces, are not one range: theirs begins at 0.
        """
        return self._entry.data_offsets

    @property
    def source(self) -> ByteSource | None:
        """The file with its bytes; None if they are nowhere in this form: after a cast, for views with gaps."""
        return self._reader.source

    @property
    def span(self) -> ByteRange | None:
        """Half-open range of bytes of `source`; None if `source` is None."""
        return self._reader.span_of(self._entry)

    @property
    def digest(self) -> bytes | None:
        """The BLAKE3 digest that the file has for its bytes (32 bytes); None without one, or if `span` is None."""
        return None if self.span is None else self._digest


def selected_of(lazy: TensorFacts, index: Any) -> Selection:
    """Return what an index selects of a tensor."""
    try:
        return parse_index(index, lazy.shape)
    except SelectionError as error:
        raise about(lazy, error) from None


def about(lazy: TensorFacts, error: SelectionError) -> SelectionError:
    """Return the error of an index, a dimension or a rank that does not fit a tensor, with its name and its file."""
    message = f"tensor `{lazy.name}`: {error.message}"
    return error.with_fields(message=message, tensor=lazy.name, path=lazy.reader.path)

"""The index of a checkpoint: its tensors, and where in the data files their bytes are. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from math import prod
from typing import Final, NoReturn

import msgspec

from tensorkeep.digests import unmasked
from tensorkeep.errors import FormatError, UnsupportedError
from tensorkeep.formats.protobuf import parse_message
from tensorkeep.formats.tensorflow._dtypes import BY_NUMBER, STRING, ForeignDType
from tensorkeep.formats.tensorflow._entries import WHOLE, Entry, EntryParser, Header, Slice, parse_header
from tensorkeep.formats.tensorflow._slice_keys import FIRST, slice_key
from tensorkeep.formats.tensorflow._table import read_table
from tensorkeep.transport import ByteRange, ByteSource

_LENGTHS_SUM_NBYTES: Final = 4


class Part(msgspec.Struct, frozen=True, gc=False):
    """A part of a tensor, or all of it.

    Attributes:
        starts: First element along each dimension.
        shape: Elements along each dimension.
        shard: Number of the data file.
        start: The first of its bytes in that file.
        stop: One past the last of them.
        crc: Their CRC-32C.
    """

    starts: tuple[int, ...]
    shape: tuple[int, ...]
    shard: int
    start: int
    stop: int
    crc: int

    @property
    def span(self) -> ByteRange:
        """Its bytes in that file."""
        return ByteRange(self.start, self.stop)


class BundledTensor(msgspec.Struct, frozen=True, gc=False):
    """A tensor of a checkpoint.

    Attributes:
        dtype: TensorFlow's dtype.
        shape: Elements along each dimension.
        parts: Where its elements are: in one place, or in the parts that were saved one by one.
    """

    dtype: ForeignDType
    shape: tuple[int, ...]
    parts: tuple[Part, ...]

    @property
    def is_whole(self) -> bool:
        """Whether its elements are in one place."""
        return len(self.parts) == 1 and self.parts[0].shape == self.shape

    @property
    def is_string(self) -> bool:
        """Whether its elements are strings."""
        return self.dtype is BY_NUMBER[STRING]


class Bundle(msgspec.Struct, frozen=True):
    """What the index of a checkpoint says.

    Attributes:
        header: What holds for all tensors.
        tensors: Key to tensor, in the order of the keys.
    """

    header: Header
    tensors: dict[str, BundledTensor]

    def ends(self) -> dict[int, int]:
        """Return number to needed size in bytes, of each data file that holds anything."""
        found: dict[int, int] = {}
        for tensor in self.tensors.values():
            for part in tensor.parts:
                found[part.shard] = max(found.get(part.shard, 0), part.stop)
        return found


def read_bundle(source: ByteSource) -> Bundle:
    """Read an index, and prove that it is consistent."""
    table = read_table(source)
    head = table.pop(b"", None)
    if head is None:
        _refuse("the index has no header", "an entry without a key", "none")
    _refuse_first_version(head)
    header = parse_header(head)
    entries = dict(zip(table, EntryParser().parse(table.values()), strict=True))
    slices = {key: entry for key, entry in entries.items() if key.startswith(FIRST)}
    tensors = {_text(key): _tensor(key, entry, slices) for key, entry in entries.items() if not key.startswith(FIRST)}
    if slices:
        _refuse("a part in the index is of no tensor", "a tensor that lists it", f"{next(iter(slices))!r:.100}")
    bundle = Bundle(header, tensors)
    _check_places(bundle)
    return bundle


def _refuse_first_version(head: bytes) -> None:
    """Refuse the single files of TensorFlow before version 1: tables too, but with a list as their first entry."""
    if any(number == 1 and isinstance(value, bytes) for number, value in parse_message(head)):
        raise UnsupportedError(
            "a checkpoint in the first format of TensorFlow, which ended in 2016",
            expected="an .index file and its .data files",
            hint="Restore it with tf.compat.v1.train.Saver, and save it again with write_version=SaverDef.V2",
        )


def _text(key: bytes) -> str:
    try:
        return key.decode()
    except UnicodeDecodeError:
        _refuse("a name in the index is not UTF-8", "text", f"{key!r:.100}")


def _tensor(key: bytes, entry: Entry, slices: dict[bytes, Entry]) -> BundledTensor:
    if not entry.slices or all(extent == WHOLE for extent in entry.slices[0]):
        _check_size(key, entry)
        return BundledTensor(entry.dtype, entry.shape, (_part((0,) * len(entry.shape), entry),))
    parts = tuple(_sliced(key, entry, part, slices) for part in entry.slices)
    return BundledTensor(entry.dtype, entry.shape, parts)


def _sliced(key: bytes, whole: Entry, part: Slice, slices: dict[bytes, Entry]) -> Part:
    """Return one part of a tensor, which has an entry of its own."""
    entry = slices.pop(slice_key(key, part), None)
    if entry is None or entry.slices or len(part) != len(whole.shape):
        _refuse(f"a part of tensor `{_text(key)}` is missing", "an entry for each part, once", f"none for {part}")
    shape = tuple(extent if length < 0 else length for extent, (_, length) in zip(whole.shape, part, strict=True))
    if (entry.dtype, entry.shape) != (whole.dtype, shape):
        _refuse(
            f"a part of tensor `{_text(key)}` is not as the tensor says",
            f"{whole.dtype.name} {list(shape)}",
            f"{entry.dtype.name} {list(entry.shape)}",
        )
    _check_size(key, entry)
    return _part(tuple(start for start, _ in part), entry)


def _part(starts: tuple[int, ...], entry: Entry) -> Part:
    start = entry.start
    return Part(starts, entry.shape, entry.shard, start, start + entry.nbytes, unmasked(entry.stored_crc))


def _check_size(key: bytes, entry: Entry) -> None:
    n_elements = prod(entry.shape)
    if entry.dtype.itemsize:
        nbytes = n_elements * entry.dtype.itemsize
        is_right, expected = entry.nbytes == nbytes, f"{nbytes:,}"
    elif entry.dtype is BY_NUMBER[STRING]:
        least = n_elements + _LENGTHS_SUM_NBYTES
        is_right, expected = entry.nbytes >= least, f"at least {least:,}"
    else:
        return
    if not is_right:
        _refuse(
            f"tensor `{_text(key)}` has another size than its dtype and shape say",
            f"{expected} bytes",
            f"{entry.nbytes:,}",
        )


def _check_places(bundle: Bundle) -> None:
    """Refuse data files that there are not, and bytes that two tensors share."""
    places = sorted(_places(bundle))
    if places and places[-1][0] >= bundle.header.n_shards:
        _refuse(
            "a tensor is in a data file that there is not", f"one of {bundle.header.n_shards}", str(places[-1][0])
        )
    for (shard, _, stop), (other, start, _) in pairwise(places):
        if shard == other and start < stop:
            _refuse("two tensors share bytes of a data file", "bytes of their own", f"byte {start:,}")


def _places(bundle: Bundle) -> Iterator[tuple[int, int, int]]:
    for tensor in bundle.tensors.values():
        for part in tensor.parts:
            if part.start < part.stop:
                yield part.shard, part.start, part.stop


def _refuse(what: str, expected: str, found: str) -> NoReturn:
    raise FormatError(what, expected=expected, found=found, hint="If the file was copied, get it again")

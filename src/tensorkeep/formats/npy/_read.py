"""The arrays of a `.npy` or `.npz` file. Only headers are read: those of arrays together with the archive's."""

from __future__ import annotations

from typing import Final

import msgspec

from tensorkeep.collector import PausedCollector
from tensorkeep.errors import FormatError, LimitError, TensorkeepError
from tensorkeep.formats._contents import FileContents, TensorPlace, UntypedTensor
from tensorkeep.formats._sniff import SNIFF_NBYTES
from tensorkeep.formats._strings import StringArray
from tensorkeep.formats.archives import InflatedSource, Member, inflate_head, read_archive
from tensorkeep.formats.npy._arrays import Placed, UnknownArray, bytes_of, place_array, times_of
from tensorkeep.formats.npy._header import FIRST_NBYTES, MAGIC, ArrayHeader, header_nbytes, parse_array_header
from tensorkeep.limits import MAX_ARRAY_HEADERS_NBYTES
from tensorkeep.transport import ByteRange, ByteSource

_SUFFIX: Final = ".npy"
_ALONE: Final = "tensor"
"""What the array of a `.npy` file is called, as a tensor alone in a file of PyTorch's is."""

_NOT_AN_ARRAY: Final = UnknownArray("", "a member of the archive that is not an array")
ZIP_MAGIC: Final = b"PK\3\4"
"""First bytes of any zip archive that has members."""

_EMPTY_ZIP: Final = b"PK\5\6"
ARCHIVE_SUFFIX: Final = ".npz"

_TIMES_KEY: Final = "numpy.types"
"""Key of the dtypes of dates and time spans, such as `<M8[ns]`, in JSON by name."""

_ZIP_NAME_START: Final = 30
_HEAD_NBYTES: Final = 512
"""Bytes of a member to read first: a plain header that is deflated takes up to 200, most of them tables of codes."""


def is_npz(source: ByteSource) -> bool:
    """Say whether a zip archive is one of arrays: its first member is called `*.npy`, or the file itself `*.npz`.

    PyTorch puts all members into a folder, also in a file with that name.
    """
    is_named = source.name.lower().endswith(ARCHIVE_SUFFIX)
    head = bytes(source.read(ByteRange(0, min(SNIFF_NBYTES, source.nbytes))))
    if not head.startswith(ZIP_MAGIC):
        return is_named and head.startswith(_EMPTY_ZIP)
    first = head[_ZIP_NAME_START : _ZIP_NAME_START + int.from_bytes(head[26:28], "little")]
    return first.endswith(_SUFFIX.encode()) or (is_named and b"/" not in first)


def parse_npy(source: ByteSource) -> FileContents:
    """Read the header of an array; it is called `tensor`."""
    head = bytes(source.read(ByteRange(0, min(FIRST_NBYTES, source.nbytes))))
    whole = Member("", ByteRange(0, source.nbytes), source.nbytes, is_compressed=False, crc=0, head=head)
    return _contents_of(source, [(_ALONE, whole)], has_others=False)


def parse_npz(source: ByteSource) -> FileContents:
    """Read the directory of an archive and the headers of all arrays in it."""
    with PausedCollector():
        return _parse_npz(source)


def _parse_npz(source: ByteSource) -> FileContents:
    members = read_archive(source, has_top=False, head_nbytes=_HEAD_NBYTES).members
    arrays = [(name.removesuffix(_SUFFIX), member) for name, member in members.items() if name.endswith(_SUFFIX)]
    contents = _contents_of(source, arrays, has_others=True)
    others = [name for name in members if not name.endswith(_SUFFIX)]
    named = contents.tensors.keys() | contents.unknowns.keys() | contents.strings.keys()
    if twice := [name for name in others if name in named]:
        raise FormatError("a member has the name of an array", path=source.name, found=twice[0])
    unknowns = {**contents.unknowns, **dict.fromkeys(others, _NOT_AN_ARRAY)}
    return msgspec.structs.replace(contents, unknowns=unknowns)


def _contents_of(source: ByteSource, named: list[tuple[str, Member]], *, has_others: bool) -> FileContents:
    tensors: dict[str, TensorPlace] = {}
    unknowns: dict[str, UntypedTensor | UnknownArray] = {}
    strings: dict[str, StringArray] = {}
    times: dict[str, str] = {}
    pickles: list[str] = []
    headers = _Headers(source)
    for name, member in named:
        try:
            head = inflate_head(member.head, FIRST_NBYTES) if member.is_compressed else member.head
            placed: dict[str, Placed] = {name: _NOT_AN_ARRAY}
            if not has_others or head.startswith(MAGIC):
                header, data_start = headers.read(member, head)
                placed = place_array(name, header, data_start, bytes_of(member, source))
                times |= times_of(name, header)
                pickles += [name] if header.elements.holds_objects else []
            for part, array in placed.items():
                if part in tensors or part in unknowns or part in strings:
                    raise FormatError("two arrays, or fields of them, have one name", found=repr(part))
                if isinstance(array, TensorPlace):
                    tensors[part] = array
                elif isinstance(array, StringArray):
                    strings[part] = array
                else:
                    unknowns[part] = array
        except TensorkeepError as error:
            raise error.with_fields(path=source.name, tensor=error.tensor or name) from None
    metadata = {_TIMES_KEY: msgspec.json.encode(times).decode()} if times else None
    return FileContents(tensors, metadata, unknowns=unknowns, strings=strings, pickles=tuple(pickles))


class _Headers:
    """Reads the headers of one file. Those of arrays of one dtype and shape are the same bytes, parsed once."""

    def __init__(self, source: ByteSource) -> None:
        self._source = source
        self._parsed: dict[bytes, ArrayHeader] = {}
        self._n_long = 0

    def read(self, member: Member, head: bytes) -> tuple[ArrayHeader, int]:
        """Return the header of a member, and the byte at which its data begins, whose size is checked."""
        data_start = header_nbytes(head, member.nbytes)
        header = self._parse(head[:data_start]) if data_start <= len(head) else self._parse_long(member, data_start)
        found = member.nbytes - data_start
        if found != header.data_nbytes and not header.elements.holds_objects:
            raise FormatError(
                "the array does not have the size that its header says",
                expected=f"{header.data_nbytes:,} bytes of data",
                found=f"{found:,}",
                hint="Save several arrays with numpy.savez" if found > header.data_nbytes else "Get the file again",
            )
        return header, data_start

    def _parse(self, head: bytes) -> ArrayHeader:
        header = self._parsed.get(head)
        if header is None:
            header = self._parsed[head] = parse_array_header(head)
        return header

    def _parse_long(self, member: Member, nbytes: int) -> ArrayHeader:
        """Parse a header whose start alone was read."""
        self._n_long += nbytes
        if self._n_long > MAX_ARRAY_HEADERS_NBYTES:
            raise LimitError(
                "the headers of the arrays are too long together",
                expected=f"at most {MAX_ARRAY_HEADERS_NBYTES:,} bytes",
            )
        if member.is_compressed:
            return parse_array_header(bytes(InflatedSource(self._source, member).read(ByteRange(0, nbytes))))
        start = member.span.start
        return parse_array_header(bytes(self._source.read(ByteRange(start, start + nbytes))))

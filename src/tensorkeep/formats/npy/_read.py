"""The arrays of a `.npy` or `.npz` file. Only headers are read, those of an archive's members many at a time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from tensorkeep.errors import FormatError, LimitError, TensorkeepError
from tensorkeep.formats._sniff import SNIFF_NBYTES, sniff
from tensorkeep.formats.archives import InflatedSource, Member, inflate_head, read_archive
from tensorkeep.formats.npy._arrays import ArrayFile, Form, StoredArray, UnknownArray, place_array
from tensorkeep.formats.npy._header import FIRST_NBYTES, MAGIC, ArrayHeader, header_nbytes, parse_array_header
from tensorkeep.limits import MAX_ARRAY_HEADERS_NBYTES
from tensorkeep.transport import ByteRange, ByteSource

_SUFFIX: Final = ".npy"
_ALONE: Final = "tensor"
"""What the array of a `.npy` file is called, as a tensor alone in a file of PyTorch's is."""

_ZIP_SIGNATURE: Final = b"PK\3\4"
_ZIP_NAME_START: Final = 30
_FIRST_DEFLATED_NBYTES: Final = 512
"""Bytes of a deflated member to read first; a plain header needs up to 200, most of them tables of the codes."""


def is_npy(head: bytes) -> bool:
    """Say whether a file that begins so is an array."""
    return head.startswith(MAGIC)


def is_npz(head: bytes) -> bool:
    """Say whether a file that begins so is an archive of arrays: a zip whose first member is called `*.npy`."""
    name_stop = _ZIP_NAME_START + int.from_bytes(head[26:28], "little")
    return head.startswith(_ZIP_SIGNATURE) and head[_ZIP_NAME_START:name_stop].endswith(_SUFFIX.encode())


def read_npy(source: ByteSource) -> ArrayFile:
    """Read the header of an array."""
    whole = Member("", ByteRange(0, source.nbytes), source.nbytes, is_compressed=False, crc=0)
    try:
        return _file_of("npy", source, [(_ALONE, whole)])
    except FormatError as error:
        head = bytes(source.read(ByteRange(0, min(SNIFF_NBYTES, source.nbytes))))
        sniffed = None if is_npy(head) else sniff(head)
        if sniffed is None:
            raise
        raise error.with_fields(found=sniffed.what, hint=sniffed.hint) from None


def read_npz(source: ByteSource) -> ArrayFile:
    """Read the directory of an archive and the headers of all arrays in it."""
    archive = read_archive(source, has_top=False)
    members = archive.members
    named = [(name.removesuffix(_SUFFIX), member) for name, member in members.items() if name.endswith(_SUFFIX)]
    file = _file_of("npz", source, named)
    others = [name for name in members if not name.endswith(_SUFFIX)]
    if twice := [name for name in others if name in file.arrays or name in file.unknowns]:
        raise FormatError("a member has the name of an array", path=source.name, found=twice[0])
    unknowns = file.unknowns | {name: _not_an_array(name) for name in others}
    return msgspec.structs.replace(file, members=members, unknowns=unknowns)


def _file_of(form: Form, source: ByteSource, named: list[tuple[str, Member]]) -> ArrayFile:
    arrays: dict[str, StoredArray] = {}
    unknowns: dict[str, UnknownArray] = {}
    headers = _Headers(source)
    for (name, member), head in zip(named, _heads_of(source, [member for _, member in named]), strict=True):
        try:
            if form == "npz" and not is_npy(head):
                placed: Mapping[str, StoredArray | UnknownArray] = {name: _not_an_array(member.name)}
            else:
                placed = place_array(name, member.name, *headers.read(member, head))
            for part, array in placed.items():
                if part in arrays or part in unknowns:
                    raise FormatError("two arrays, or fields of them, have one name", found=repr(part))
                if isinstance(array, StoredArray):
                    arrays[part] = array
                else:
                    unknowns[part] = array
        except TensorkeepError as error:
            raise error.with_fields(path=source.name, tensor=error.tensor or name) from None
    return ArrayFile(form, {member.name: member for _, member in named}, arrays, unknowns)


def _heads_of(source: ByteSource, members: list[Member]) -> list[bytes]:
    """Read the first bytes of all members at once."""
    limits = [_FIRST_DEFLATED_NBYTES if member.is_compressed else FIRST_NBYTES for member in members]
    heads = [bytearray(min(limit, len(member.span))) for limit, member in zip(limits, members, strict=True)]
    source.read_into([
        (member.span.start, memoryview(head)) for member, head in zip(members, heads, strict=True) if head
    ])
    return [
        inflate_head(bytes(head), FIRST_NBYTES) if member.is_compressed else bytes(head)
        for head, member in zip(heads, members, strict=True)
    ]


class _Headers:
    """Reads the headers of one file. Those of arrays of one dtype and shape are the same bytes, parsed once."""

    def __init__(self, source: ByteSource) -> None:
        self._source = source
        self._parsed: dict[bytes, ArrayHeader] = {}
        self._n_long = 0

    def read(self, member: Member, head: bytes) -> tuple[ArrayHeader, int]:
        """Return the header of a member, and the byte at which its data begins; its size is that of the array."""
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
        """Parse a header of which only the start was read."""
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


def _not_an_array(name: str) -> UnknownArray:
    return UnknownArray(name, "", (), "a member of the archive that is not an array")

"""Object headers: the messages that make an object a group or a dataset, in both versions of the format. Pure."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final

import msgspec

from tensorkeep.errors import FormatError, UnsupportedError
from tensorkeep.formats.hdf5.structures._checksums import CHECKSUM_NBYTES
from tensorkeep.formats.hdf5.structures._fields import Fields
from tensorkeep.formats.hdf5.structures._reading import Dialect, Parsing, together

DATASPACE: Final = 0x01
LINK_INFO: Final = 0x02
DATATYPE: Final = 0x03
OLD_FILL_VALUE: Final = 0x04
FILL_VALUE: Final = 0x05
LINK: Final = 0x06
EXTERNAL_FILES: Final = 0x07
LAYOUT: Final = 0x08
FILTERS: Final = 0x0B
ATTRIBUTE: Final = 0x0C
_CONTINUATION: Final = 0x10
SYMBOL_TABLE: Final = 0x11
ATTRIBUTE_INFO: Final = 0x15
_NOTHING: Final = 0x00

_N_NAMES: Final = 0x16
_SHARED: Final = 0x02
_IN_HEAP: Final = 1
_MUST_UNDERSTAND: Final = 0x80
_LAST_KNOWN: Final = 0x17

_OLD_PREFIX_NBYTES: Final = 16
_OLD_MESSAGE: Final = struct.Struct("<HHB3x")
_NEW_MESSAGE: Final = struct.Struct("<BHB")
"""Type, bytes and flags of a message; the place in the order in which messages were made may follow."""

_FIRST_NBYTES: Final = 512
"""Bytes to read first: most headers are shorter."""

_HAS_TIMES: Final = 0x20
_HAS_BOUNDS: Final = 0x10
_HAS_ORDER: Final = 0x04


class Message(msgspec.Struct, frozen=True):
    """One message of a header.

    Attributes:
        kind: Its type.
        data: Its bytes.
        start: The byte of the source at which they begin.
        is_shared: Whether the bytes say where the message is, instead of being it.
    """

    kind: int
    data: bytes
    start: int
    is_shared: bool = False


class ObjectHeader(msgspec.Struct, frozen=True):
    """The header of one object.

    Attributes:
        address: Where it is.
        n_names: How many links lead to it, as it says.
        messages: Its messages in order, without those that only hold it together.
    """

    address: int
    messages: tuple[Message, ...]
    n_names: int = 1

    def find(self, kind: int) -> Message | None:
        """Return the first message of a type."""
        for message in self.messages:
            if message.kind == kind:
                return message
        return None

    def all(self, kind: int) -> list[Message]:
        """Return all messages of a type."""
        return [message for message in self.messages if message.kind == kind]


def read_object(dialect: Dialect, address: int) -> Parsing[ObjectHeader]:
    """Read a header, and the messages that it shares with other objects, such as a named datatype."""
    header = yield from parse_object_header(dialect, address)
    if not any(message.is_shared for message in header.messages):
        return header
    shared = [message for message in header.messages if message.is_shared]
    found = iter((yield from together(read_shared(dialect, message) for message in shared)))
    messages = tuple(next(found) if message.is_shared else message for message in header.messages)
    return ObjectHeader(address, messages, header.n_names)


def read_shared(dialect: Dialect, message: Message) -> Parsing[Message]:
    """Return the message that another one refers to."""
    fields = Fields(message.data)
    version, place = fields.uint(1), fields.uint(1)
    if version == 1:
        fields.skip(6)
    elif version == 3 and place == _IN_HEAP:
        raise UnsupportedError("an object shares a part of its header through a table of the file")
    address = dialect.address(fields)
    if address is None:
        raise FormatError("an object shares a part of its header with nothing")
    found = (yield from parse_object_header(dialect, address)).find(message.kind)
    if found is None or found.is_shared:
        raise FormatError("an object shares a part of its header with one that has no such part")
    return found


def parse_object_header(dialect: Dialect, address: int) -> Parsing[ObjectHeader]:
    """Read a header and its continuations."""
    head = (yield [dialect.up_to(address, _FIRST_NBYTES)])[0]
    parse = _parse_new if head.startswith(b"OHDR") else _parse_old
    messages = yield from parse(dialect, address, head)
    return ObjectHeader(address, tuple(messages), _n_names(head, messages))


def _n_names(head: bytes, messages: list[Message]) -> int:
    """Return how many links lead to an object: new headers say so only if there are several."""
    if not head.startswith(b"OHDR"):
        return int.from_bytes(head[4:8], "little")
    counts = [int.from_bytes(message.data[1:5], "little") for message in messages if message.kind == _N_NAMES]
    return counts[0] if counts else 1


def _parse_old(dialect: Dialect, address: int, head: bytes) -> Parsing[list[Message]]:
    fields = Fields(head)
    version = fields.uint(1)
    if version != 1:
        raise FormatError("there is no object header where one should be", found=f"version {version} at {address:,}")
    fields.skip(1)
    n_messages = fields.uint(2)
    fields.skip(4)
    nbytes = fields.uint(4)
    messages: list[Message] = []
    waiting = [(address + _OLD_PREFIX_NBYTES, nbytes)]
    seen: set[int] = set()
    while waiting and n_messages:
        start, nbytes = waiting.pop(0)
        _refuse_again(start, seen)
        held = (
            head[_OLD_PREFIX_NBYTES : _OLD_PREFIX_NBYTES + nbytes] if start == address + _OLD_PREFIX_NBYTES else b""
        )
        block = held if len(held) == nbytes else (yield [dialect.span(start, nbytes)])[0]
        at = 0
        while at + _OLD_MESSAGE.size <= nbytes and n_messages:
            kind, size, flags = _OLD_MESSAGE.unpack_from(block, at)
            at += _OLD_MESSAGE.size
            message = _message(kind, block[at : at + size], size, dialect.base + start + at, flags)
            _sort(dialect, message, flags, messages, waiting)
            at += size
            n_messages -= 1
    return messages


def _parse_new(dialect: Dialect, address: int, head: bytes) -> Parsing[list[Message]]:
    fields = Fields(head, 4)
    version, flags = fields.uint(1), fields.uint(1)
    if version != 2:
        raise UnsupportedError("an object header has a version that is not known", found=str(version))
    fields.skip((16 if flags & _HAS_TIMES else 0) + (4 if flags & _HAS_BOUNDS else 0))
    nbytes = fields.uint(1 << (flags & 3))
    start = fields.position
    whole = start + nbytes + CHECKSUM_NBYTES
    block = (yield [dialect.sealed(address, whole, "an object header")])[0]
    messages: list[Message] = []
    waiting: list[tuple[int, int]] = []
    seen: set[int] = set()
    while True:
        for message, message_flags in _new_messages(block, start, dialect.base + address, flags):
            _sort(dialect, message, message_flags, messages, waiting)
        if not waiting:
            return messages
        address, nbytes = waiting.pop(0)
        _refuse_again(address, seen)
        block = (yield [dialect.sealed(address, nbytes, "an object header")])[0]
        Fields(block).expect(b"OCHK", "continuation of an object header")
        start = 4


def _new_messages(block: bytes, start: int, base: int, flags: int) -> Iterator[tuple[Message, int]]:
    """Give the messages from byte `start` of a block on, which is at byte `base` of the source, and their flags."""
    prefix_nbytes = _NEW_MESSAGE.size + (2 if flags & _HAS_ORDER else 0)
    stop = len(block) - CHECKSUM_NBYTES
    at = start
    while at + prefix_nbytes <= stop:  # fewer are a gap
        kind, size, message_flags = _NEW_MESSAGE.unpack_from(block, at)
        at += prefix_nbytes
        yield _message(kind, block[at : min(at + size, stop)], size, base + at, message_flags), message_flags
        at += size


def _message(kind: int, data: bytes, nbytes: int, start: int, flags: int) -> Message:
    if len(data) != nbytes:
        raise FormatError("a message is longer than the header that it is in", found=f"{nbytes:,} bytes")
    return Message(kind, data, start, bool(flags & _SHARED))


def _sort(
    dialect: Dialect, message: Message, flags: int, messages: list[Message], waiting: list[tuple[int, int]]
) -> None:
    """Keep a message, or note where the header continues."""
    if message.kind == _CONTINUATION:
        fields = Fields(message.data)
        start, nbytes = dialect.address(fields), dialect.length(fields)
        if start is None:
            raise FormatError("an object header continues nowhere")
        waiting.append((start, nbytes))
    elif message.kind > _LAST_KNOWN and flags & _MUST_UNDERSTAND:
        raise UnsupportedError(
            "an object header has a message that readers must know", found=f"type {message.kind:#x}"
        )
    elif message.kind != _NOTHING:
        messages.append(message)


def _refuse_again(start: int, seen: set[int]) -> None:
    if start in seen:
        raise FormatError("an object header continues in itself", found=f"address {start:,}")
    seen.add(start)

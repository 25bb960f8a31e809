"""Bytes to nested values, in one pass. Containers are on a list of our own, so that no depth exhausts the stack.

A key that occurs twice is refused: Flax would keep only the last value, without a word.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, Final

from tensorkeep.errors import FormatError, LimitError
from tensorkeep.formats.msgpack._cursor import Cursor
from tensorkeep.formats.msgpack._numpy import HEAD_NBYTES, ArrayParser, match_extension
from tensorkeep.formats.msgpack._values import Array, Extension
from tensorkeep.limits import MAX_GRAPH_DEPTH, MAX_MESSAGE_TEXTS_NBYTES, MAX_MESSAGE_VALUES, MAX_NUMBER_KEYS
from tensorkeep.transport import ByteRange, ByteSource

_NDARRAY, _COMPLEX, _SCALAR = 1, 2, 3
_ARRAYS: Final = frozenset((_NDARRAY, _SCALAR))
"""Flax's types of extensions."""

_PAIR: Final = struct.Struct(">BBdBd")
"""A list of two floats."""

_PAIR_CODES: Final = 0x92, 0xCB, 0xCB
_MAX_ENTRY_NBYTES: Final = 1024
"""Bytes of a short name and of an array before its elements: 32, and 11 for each of 64 dimensions and some."""

_SAFE_KEY: Final = 2**24
"""Numbers below this are harmless as keys; the hashes of larger ones may be chosen to collide."""

_KEYS: Final = frozenset({str, bytes, int, float, bool, type(None)})


def read_value(source: ByteSource) -> Any:
    """Return the nested value of a file, which must fill it: dicts, lists, plain data, `Array` and `Extension`."""
    return _Walk(source).whole()


class _Open:
    """A container that is not complete yet."""

    def __init__(self, container: Any, n_left: int) -> None:
        self.container = container
        self.n_left = n_left


class _Walk:
    """One pass over a file."""

    def __init__(self, source: ByteSource) -> None:
        self.cursor = Cursor(source)
        self._open: list[_Open] = []
        self._arrays = ArrayParser()
        self._n_values = 0
        self._n_text_bytes = 0
        self._n_number_keys = 0

    def whole(self) -> Any:
        """Return the value of the whole file."""
        value = self._value()
        while self._open:
            inner = self._open[-1]
            if not inner.n_left:
                self._open.pop()
                continue
            inner.n_left -= 1
            if type(inner.container) is dict:
                key = self._key(inner.container)
                child = inner.container[key] = self._value()
                if type(child) is Array:
                    inner.n_left -= self._add_arrays(inner.container, inner.n_left)
            else:
                inner.container.append(self._value())
        if self.cursor.n_left:
            raise FormatError(
                "bytes follow the value",
                expected=f"{self.cursor.position:,} bytes",
                found=f"{self.cursor.nbytes:,}",
            )
        return value

    def _value(self) -> Any:
        """Read a leaf, or begin a container."""
        self._n_values += 1
        if self._n_values > MAX_MESSAGE_VALUES:
            raise LimitError("too many values", expected=f"at most {MAX_MESSAGE_VALUES:,}", found="more")
        code = self.cursor.byte()
        return _READERS[code](self, code)

    def _add_arrays(self, into: dict[Any, Any], n_most: int) -> int:
        """Read arrays that follow under short names, as far as the window goes, and return how many."""
        window, at = self.cursor.window()
        last = min(len(window) - _MAX_ENTRY_NBYTES, at + self.cursor.n_left)
        first, shift, n_before = at, self.cursor.position - at, len(into)
        start = b""
        while at <= last and len(into) - n_before < n_most:
            length = window[at] & 0x1F
            stop = at + 1 + length
            if window[at] & 0xE0 != 0xA0 or not (start and window.startswith(start, stop)):
                found = match_extension(window, stop) if window[at] & 0xE0 == 0xA0 else None
                if found is None:
                    break
                start = found[0]
                dtype, shape, nbytes = self._arrays.usual(start)
            try:
                key = window[at + 1 : stop].decode()
            except UnicodeDecodeError:
                break
            elements = shift + stop + len(start)
            if key in into or elements + nbytes > self.cursor.nbytes:
                break
            into[key] = Array(dtype, shape, (ByteRange(elements, elements + nbytes),))
            self._n_text_bytes += length
            at = stop + len(start) + nbytes
        n_added = len(into) - n_before
        self._n_values += n_added
        self.cursor.skip(at - first)
        return n_added

    def _key(self, others: dict[Any, Any]) -> Any:
        code = self.cursor.byte()
        key: Any = [] if code in _CONTAINERS else _READERS[code](self, code)
        if type(key) not in _KEYS:
            raise FormatError("a key is neither text nor a number", found=f"byte 0x{code:02x}")
        if type(key) in {int, float} and not -_SAFE_KEY < key < _SAFE_KEY:
            self._n_number_keys += 1
            if self._n_number_keys > MAX_NUMBER_KEYS:
                raise LimitError("too many keys are large numbers", expected=f"at most {MAX_NUMBER_KEYS:,}")
        if key in others:
            raise FormatError("a key occurs twice", found=f"{key!r:.200}")
        return key

    def begin(self, container: Any, n_entries: int, n_each: int) -> Any:
        """Begin a container; each entry takes `n_each` bytes or more."""
        if n_entries * n_each > self.cursor.n_left:
            raise FormatError(
                "a container has more entries than the file has bytes",
                expected=f"at most {self.cursor.n_left // n_each:,}",
                found=f"{n_entries:,}",
            )
        if len(self._open) == MAX_GRAPH_DEPTH:
            raise LimitError("values are nested too deeply", expected=f"at most {MAX_GRAPH_DEPTH} levels")
        self._open.append(_Open(container, n_entries))
        return container

    def begin_dict(self, n_entries: int) -> Any:
        """Begin a dict."""
        return self.begin({}, n_entries, 2)

    def begin_list(self, n_entries: int) -> Any:
        """Begin a list."""
        return self.begin([], n_entries, 1)

    def binary(self, nbytes: int) -> bytes:
        """Read bytes that are not in an array."""
        self._n_text_bytes += nbytes
        if self._n_text_bytes > MAX_MESSAGE_TEXTS_NBYTES:
            raise LimitError(
                "text and bytes beside the arrays are too long together",
                expected=f"at most {MAX_MESSAGE_TEXTS_NBYTES:,} bytes",
            )
        return self.cursor.take(nbytes)

    def text(self, nbytes: int) -> str:
        """Read text."""
        text = self.binary(nbytes)
        try:
            return text.decode()
        except UnicodeDecodeError:
            raise FormatError("text is not UTF-8", found=f"{text[:100]!r}") from None

    def extension(self, nbytes: int) -> Any:
        """Read the type of an extension, and its payload."""
        kind = self.cursor.byte()
        if kind in _ARRAYS:
            head = self.cursor.peek(min(nbytes, HEAD_NBYTES))
            return self._arrays.parse(head, self.cursor.skip(nbytes), is_scalar=kind == _SCALAR)
        if kind != _COMPLEX:
            return Extension(kind - 256 if kind > 127 else kind, self.cursor.skip(nbytes))
        if nbytes == _PAIR.size:
            listed, first, real, second, imaginary = _PAIR.unpack(self.cursor.take(nbytes))
            if (listed, first, second) == _PAIR_CODES:
                return complex(real, imaginary)
        raise FormatError("a complex number is not two floats", found=f"{nbytes:,} bytes")


_Reader = Callable[[_Walk, int], Any]


def _counted(read: _Reader, width: int) -> _Reader:
    """Read a length of so many bytes, then what it is the length of."""
    return lambda walk, _: read(walk, walk.cursor.number(width))


def _masked(read: _Reader, mask: int) -> _Reader:
    """Take the length from the first byte itself."""
    return lambda walk, code: read(walk, code & mask)


def _packed(form: str) -> _Reader:
    """Read one number as `struct` names it."""
    packed = struct.Struct(form)
    return lambda walk, _: packed.unpack(walk.cursor.take(packed.size))[0]


def _fixed(nbytes: int) -> _Reader:
    return lambda walk, _: walk.extension(nbytes)


def _constant(value: Any) -> _Reader:
    return lambda _walk, _code: value


def _unknown(walk: _Walk, code: int) -> Any:
    raise FormatError("not a value of MessagePack", found=f"byte 0x{code:02x} at {walk.cursor.position - 1:,}")


_READERS: Final[list[_Reader]] = [
    *(_constant(number) for number in range(0x80)),
    *([_masked(_Walk.begin_dict, 0x0F)] * 0x10),
    *([_masked(_Walk.begin_list, 0x0F)] * 0x10),
    *([_masked(_Walk.text, 0x1F)] * 0x20),
    *(_constant(None), _unknown, _constant(False), _constant(True)),
    *(_counted(_Walk.binary, width) for width in (1, 2, 4)),
    *(_counted(_Walk.extension, width) for width in (1, 2, 4)),
    *(_packed(form) for form in (">f", ">d", ">B", ">H", ">I", ">Q", ">b", ">h", ">i", ">q")),
    *(_fixed(nbytes) for nbytes in (1, 2, 4, 8, 16)),
    *(_counted(_Walk.text, width) for width in (1, 2, 4)),
    *(_counted(_Walk.begin_list, width) for width in (2, 4)),
    *(_counted(_Walk.begin_dict, width) for width in (2, 4)),
    *(_constant(number) for number in range(-0x20, 0)),
]
"""What reads a value, by its first byte."""

_CONTAINERS: Final = frozenset((*range(0x80, 0xA0), 0xDC, 0xDD, 0xDE, 0xDF))
"""First bytes of lists and dicts, which cannot be keys."""

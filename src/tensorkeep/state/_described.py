"""Nodes as text: any value on one line, as Python would write it. Pure."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import date, time, timedelta, timezone
from fractions import Fraction
from typing import Any, Final

from tensorkeep.state._nodes import FIRST_ITEM, FIRST_KEY
from tensorkeep.state._scalars import PLAIN, SCALAR_TAGS, bytes_of, text_of
from tensorkeep.state._values import Node

_MAX_DECIMAL_BITS: Final = 1024
"""Bits up to which an integer is written in decimal, which takes time quadratic in its length."""


def described(node: Node, paths: Sequence[str] = (), *, max_chars: int | None = None) -> str:
    """Write a value on one line."""
    pieces = _Writer(paths).pieces(node)
    if max_chars is None:
        return "".join(pieces)
    text = ""
    for piece in pieces:
        text += piece[: max_chars + 1]
        if len(text) > max_chars:
            return f"{text[:max_chars]}… {_extent(node)}".rstrip()
    return text


def _extent(node: Node) -> str:
    if type(node) is str:
        return f"({len(node):,} characters)"
    if type(node) is list and node[0] in FIRST_ITEM:
        return f"({len(node) - FIRST_ITEM[node[0]]:,} items)"
    if type(node) is list and node[0] in {"set", "frozenset"}:
        return f"({len(node) - 1:,} items)"
    return ""


class _Writer:
    """Writes nodes piece by piece, so that text that is cut off costs nothing."""

    def __init__(self, paths: Sequence[str]) -> None:
        self._paths = paths

    def pieces(self, node: Node) -> Iterator[str]:
        """Yield the text of a node."""
        if type(node) in PLAIN:
            yield _literal(node)
        elif type(node) is dict:
            yield "tensor"
        elif type(node) is list:
            write = _KINDS.get(node[0])
            if write is not None:
                yield from write(self, node)
            else:
                yield _scalar(node)

    def items(self, nodes: Iterable[Node], begin: str, end: str) -> Iterator[str]:
        """Yield items between brackets."""
        yield begin
        for place, node in enumerate(nodes):
            if place:
                yield ", "
            yield from self.pieces(node)
        yield end

    def keys(self, node: list[Any], begin: str, end: str) -> Iterator[str]:
        """Yield keys and values of a dict between brackets."""
        first = FIRST_KEY[node[0]]
        yield begin
        for place in range(first, len(node), 2):
            if place > first:
                yield ", "
            yield from self.pieces(node[place])
            yield ": "
            yield from self.pieces(node[place + 1])
        yield end

    def fields(self, node: list[Any], begin: str) -> Iterator[str]:
        """Yield names and values of an object between brackets."""
        first = FIRST_KEY[node[0]]
        yield f"{begin}("
        for place in range(first, len(node), 2):
            yield f"{', ' if place > first else ''}{text_of(node[place])}="
            yield from self.pieces(node[place + 1])
        yield ")"

    def tuple(self, node: list[Any]) -> Iterator[str]:
        """Yield a tuple, with the comma after a single item."""
        return self.items(node[1:], "(", ",)" if len(node) == 2 else ")")

    def same(self, node: list[Any]) -> Iterator[str]:
        """Yield the place where a container was written out."""
        yield f"same as {self._paths[node[1]]}" if node[1] < len(self._paths) else f"same as container {node[1]}"

    def composed(self, node: list[Any]) -> Iterator[str]:
        """Yield an object of an array library: its kind and settings."""
        _, library, kind, settings, parts = node
        number = _numpy_number(settings) if (library, kind) == ("numpy", "scalar") else None
        if number is not None:
            yield number
        elif settings[0] != "dict":
            yield f"{library}.{kind}(…)"
        elif len(settings) == 3 and len(parts) == 1:  # such as torch.dtype('float32')
            yield from self.items(settings[2:], f"{library}.{kind}(", ")")
        else:
            yield from self.fields(settings, f"{library}.{kind}")

    def enum(self, node: list[Any]) -> Iterator[str]:
        """Yield an enum member, by its name if it has one."""
        _, cls, name, value = node
        if name is not None:
            yield f"{text_of(cls)}.{text_of(name)}"
        else:
            yield from self.items([value], f"{text_of(cls)}(", ")")

    def binary(self, node: list[Any]) -> Iterator[str]:
        """Yield bytes, unless they are in a tensor."""
        if type(node[1]) is dict:
            yield f"{node[0]} in a tensor"
        else:
            data = bytes_of(node[1])
            yield repr(data) if node[0] == "bytes" else repr(bytearray(data))


_Write = Callable[[_Writer, list[Any]], Iterator[str]]

_KINDS: Final[dict[str, _Write]] = {
    "list": lambda writer, node: writer.items(node[1:], "[", "]"),
    "tuple": _Writer.tuple,
    "set": lambda writer, node: writer.items(node[1:], "{", "}") if len(node) > 1 else iter(["set()"]),
    "frozenset": lambda writer, node: writer.items(node[1:], "frozenset({", "})"),
    "deque": lambda writer, node: writer.items(node[2:], "deque([", "])"),
    "slice": lambda writer, node: writer.items(node[1:], "slice(", ")"),
    "dict": lambda writer, node: writer.keys(node, "{", "}"),
    "OrderedDict": lambda writer, node: writer.keys(node, "OrderedDict({", "})"),
    "defaultdict": lambda writer, node: writer.keys(node, "defaultdict({", "})"),
    "Counter": lambda writer, node: writer.keys(node, "Counter({", "})"),
    "Namespace": lambda writer, node: writer.fields(node, "Namespace"),
    "SimpleNamespace": lambda writer, node: writer.fields(node, "SimpleNamespace"),
    "dataclass": lambda writer, node: writer.fields(node, text_of(node[1])),
    "namedtuple": lambda writer, node: writer.fields(node, text_of(node[1])),
    "enum": _Writer.enum,
    "same": _Writer.same,
    "composed": _Writer.composed,
    "bytes": _Writer.binary,
    "bytearray": _Writer.binary,
}
"""Tag to the function that writes such nodes; all other tags are scalars."""

_BY_TEXT: Final = frozenset({"Decimal", "UUID", "Path", "PurePosixPath", "PureWindowsPath"})


def _scalar(node: list[Any]) -> str:
    value = SCALAR_TAGS[node[0]](*node[1:])
    if node[0] in _BY_TEXT:
        return f"{node[0]}({str(value)!r})"
    return _literal(value)


def _literal(value: Any) -> str:
    if isinstance(value, bool):
        return repr(value)
    if isinstance(value, int):
        return repr(value) if value.bit_length() <= _MAX_DECIMAL_BITS else hex(value)
    if isinstance(value, range):
        steps = [value.start, value.stop] if value.step == 1 else [value.start, value.stop, value.step]
        return f"range({', '.join(map(_literal, steps))})"
    if isinstance(value, Fraction):
        return f"Fraction({_literal(value.numerator)}, {_literal(value.denominator)})"
    if isinstance(value, timezone):
        return f"timezone({str(value)!r})"
    return str(value) if isinstance(value, date | time | timedelta) else repr(value)


_NUMPY_NUMBERS: Final = {
    "<f2": ("float16", "<e"),
    "<f4": ("float32", "<f"),
    "<f8": ("float64", "<d"),
    "|i1": ("int8", "<b"),
    "<i2": ("int16", "<h"),
    "<i4": ("int32", "<i"),
    "<i8": ("int64", "<q"),
    "|u1": ("uint8", "<B"),
    "<u2": ("uint16", "<H"),
    "<u4": ("uint32", "<I"),
    "<u8": ("uint64", "<Q"),
    "|b1": ("bool", "<?"),
}
"""A dtype's text in a file to NumPy's name for it, and the `struct` format of one number."""


def _numpy_number(settings: list[Any]) -> str | None:
    """Write a NumPy scalar as NumPy does; None if it is not a number."""
    if settings[1::2] != ["dtype", "data"] or type(settings[2]) is not str or settings[2] not in _NUMPY_NUMBERS:
        return None
    name, layout = _NUMPY_NUMBERS[settings[2]]
    node = settings[4]
    data = bytes_of(node[1]) if type(node) is list and node[0] == "bytes" and type(node[1]) is str else b""
    if len(data) != struct.calcsize(layout):
        return None
    (value,) = struct.unpack(layout, data)
    return f"np.{name}({_shortest(value, layout) if type(value) is float else value})"


def _shortest(value: float, layout: str) -> str:
    """Write a float with no more digits than its precision needs."""
    rounded = (float(f"{value:.{digits}g}") for digits in range(1, 10))
    return repr(next((short for short in rounded if _rounds_to(short, value, layout)), value))


def _rounds_to(short: float, value: float, layout: str) -> bool:
    try:
        return struct.unpack(layout, struct.pack(layout, short)) == (value,)
    except OverflowError:  # rounding up exceeded the largest number
        return False

"""Which operators of a program do more than compute: in all of its blocks and regions. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any, Final, Literal

import msgspec

from tensorkeep.errors import FormatError
from tensorkeep.formats.paddle._operators import COMPUTING, DEEDS
from tensorkeep.formats.protobuf import LENGTH, Field, MessageReader
from tensorkeep.transport import ByteSource

JSON_MAGIC: Final = b'{"base_code":{"magic":"pir"'
"""How Paddle begins a program in JSON."""

_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"
_MARKS: Final = (b"base_code", b"\\u00")
"""What every program has in its text, perhaps with letters spelled as escapes."""

_MAX_NAME_NBYTES: Final = 1000
_NAMELESS: Final = "without a name"
_STRUCTURE: Final = frozenset(("0", "builtin", "2", "cf"))
"""Prefixes of operators that only structure a program: parameters, tuples, what a block yields."""

_OPERATORS: Final = frozenset(("1", "pd_op"))


class Deed(msgspec.Struct, frozen=True):
    """What some operators of a program do.

    Attributes:
        severity: `"suspicious"` if it may do harm; `"unknown"` if nothing is known about it.
        message: What they do, with the operator's name.
    """

    severity: Literal["suspicious", "unknown"]
    message: str


def deeds_of_json(text: bytes) -> list[Deed] | None:
    """Return what a program in JSON does besides computing; None if the text is something else."""
    try:
        file = msgspec.json.decode(text.removeprefix(_BYTE_ORDER_MARK))
    except RecursionError:
        raise FormatError("the text is nested too deeply to tell whether it is a program") from None
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        if any(mark in text for mark in _MARKS):
            raise FormatError("the program is not one of Paddle's", found=f"{error}") from None
        return None
    base = file.get("base_code") if type(file) is dict else None
    if type(base) is not dict or base.get("magic") != "pir":
        return None
    return _deeds(_operator(name) for name in _names_in(file))


def _names_in(file: Any) -> Iterator[str]:
    """Yield the name of each operator, wherever a reader might look for some."""
    rest = [file]
    while rest:
        value = rest.pop()
        if type(value) is list:
            rest += value
        elif type(value) is dict:
            operators = value.get("ops")
            for operator in operators if type(operators) is list else ():
                name = operator.get("#") if type(operator) is dict else None
                yield name if type(name) is str else ""
            rest += value.values()


def _operator(name: str) -> str:
    """Return the name that an operator has in either form; empty if it only structures the program."""
    dialect, _, own = name.rpartition(".")
    if name == "p" or dialect in _STRUCTURE:
        return ""
    return (own if dialect in _OPERATORS else name) or _NAMELESS


def deeds_of_message(source: ByteSource) -> list[Deed]:
    """Return what a program that is a message does besides computing."""
    reader = MessageReader(source)
    return _deeds(_message_names(reader))


def _message_names(reader: MessageReader) -> Iterator[str]:
    for block in reader.fields():
        for operator in reader.fields(block.span) if block.number == 1 else ():
            if operator.number == 4:
                names = [part for part in reader.fields(operator.span) if _is_type(part)]
                name = reader.read_text(names[-1].span, max_nbytes=_MAX_NAME_NBYTES) if names else ""
                yield name or _NAMELESS


def _is_type(field: Field) -> bool:
    return field.number == 3 and field.wire_type == LENGTH


def _deeds(names: Iterator[str]) -> list[Deed]:
    counts = Counter(name for name in names if name and name.removesuffix("_") not in COMPUTING)
    return [_deed(name, count) for name, count in counts.items()]


def _deed(name: str, count: int) -> Deed:
    deed = DEEDS.get(name.removesuffix("_"))
    times = "" if count == 1 else f" ({count:,} times)"
    message = f"the operator {name[:100]} {deed or 'is not known to only compute'}{times}"
    return Deed("suspicious" if deed else "unknown", message)

"""The opcodes of pickle protocols 0 to 5: their names, and the argument that follows each.

Source: the documentation of Python's `pickletools`.
"""

from __future__ import annotations

from typing import Literal

import msgspec

Argument = Literal["none", "u1", "u2", "u4", "i4", "u8", "f8", "line", "two lines", "1+bytes", "4+bytes", "8+bytes"]
"""None, a number of so many bytes, text up to a newline, or bytes after a count of so many bytes."""


class Opcode(msgspec.Struct, frozen=True):
    """One opcode.

    Attributes:
        name: Its name in Python's documentation.
        argument: What follows it in the stream.
    """

    name: str
    argument: Argument


_BY_ARGUMENT: dict[Argument, str] = {
    "none": (
        "( MARK . STOP 0 POP 1 POP_MARK 2 DUP N NONE Q BINPERSID R REDUCE a APPEND b BUILD d DICT e APPENDS l LIST "
        "o OBJ s SETITEM t TUPLE u SETITEMS ] EMPTY_LIST } EMPTY_DICT ) EMPTY_TUPLE \x81 NEWOBJ \x85 TUPLE1 "
        "\x86 TUPLE2 \x87 TUPLE3 \x88 NEWTRUE \x89 NEWFALSE \x8f EMPTY_SET \x90 ADDITEMS \x91 FROZENSET "
        "\x92 NEWOBJ_EX \x93 STACK_GLOBAL \x94 MEMOIZE \x97 NEXT_BUFFER \x98 READONLY_BUFFER"
    ),
    "u1": "K BININT1 h BINGET q BINPUT \x80 PROTO \x82 EXT1",
    "u2": "M BININT2 \x83 EXT2",
    "u4": "j LONG_BINGET r LONG_BINPUT",
    "i4": "J BININT \x84 EXT4",
    "u8": "\x95 FRAME",
    "f8": "G BINFLOAT",
    "line": "F FLOAT I INT L LONG P PERSID S STRING V UNICODE g GET p PUT",
    "two lines": "c GLOBAL i INST",
    "1+bytes": "U SHORT_BINSTRING C SHORT_BINBYTES \x8c SHORT_BINUNICODE \x8a LONG1",
    "4+bytes": "T BINSTRING B BINBYTES X BINUNICODE \x8b LONG4",
    "8+bytes": "\x8d BINUNICODE8 \x8e BINBYTES8 \x96 BYTEARRAY8",
}


def _table() -> dict[int, Opcode]:
    table: dict[int, Opcode] = {}
    for argument, text in _BY_ARGUMENT.items():
        words = text.split(" ")
        for symbol, name in zip(words[::2], words[1::2], strict=True):
            table[ord(symbol)] = Opcode(name, argument)
    return table


OPCODES: dict[int, Opcode] = _table()
"""Code to opcode; all 68."""

"""Opcodes that occur a few times per file, one function each."""

from __future__ import annotations

import codecs
import re
import struct
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

from tensorkeep.errors import LimitError, PickleError, UnsafeError, UnsupportedError
from tensorkeep.formats.pickles.limits import add_items, extend, set_items
from tensorkeep.formats.pickles.machine._array_runs import read_array_run
from tensorkeep.formats.pickles.machine._stack import BrokenPickleError, PickleCutError, State
from tensorkeep.formats.pickles.machine._text_numbers import float_number, int_number, long_number, memo_number
from tensorkeep.formats.pickles.values import ArrayRecord, short_repr
from tensorkeep.limits import MAX_NAME_LENGTH, MAX_PICKLED_INT_NBYTES

_MAX_NUMBER_LENGTH: Final = 2_400
_ESCAPED = re.compile(rb"(?:[^\\]++|\\(?:[\\'\"abfnrtv]|[0-3][0-7]{0,2}|[4-7][0-7]?|x[0-9a-fA-F]{2}))*+", re.DOTALL)
_FLOAT = struct.Struct(">d").unpack


def _append(state: State) -> None:
    value = state.stack.pop()
    extend(state.stack[-1], [value])


def _appends(state: State) -> None:
    values = state.take_marked()
    extend(state.stack[-1], values)


def _add_items(state: State) -> None:
    values = state.take_marked()
    add_items(state.stack[-1], values, state.context.keys)


def _set_item(state: State) -> None:
    value, key = state.stack.pop(), state.stack.pop()
    set_items(state.stack[-1], [key, value], state.context.keys)


def _set_items(state: State) -> None:
    pairs = state.take_marked()
    set_items(state.stack[-1], pairs, state.context.keys)


def _frozen_set(state: State) -> None:
    values = state.take_marked()
    made: set[Any] = set()
    add_items(made, values, state.context.keys)
    state.stack.append(frozenset(made))


def _empty_set(state: State) -> None:
    state.context.allowance.count_set()
    state.stack.append(set())


def _dict(state: State) -> None:
    pairs = state.take_marked()
    made: dict[Any, Any] = {}
    set_items(made, pairs, state.context.keys)
    state.stack.append(made)


def _list(state: State) -> None:
    values = state.take_marked()
    state.stack.append(values)


def _tuple3(state: State) -> None:
    third, second = state.stack.pop(), state.stack.pop()
    state.stack[-1] = (state.stack[-1], second, third)


def _build(state: State) -> None:
    value = state.stack.pop()
    target = state.stack[-1]
    state.context.build(target, value, state.opcode_position)
    if type(target) is ArrayRecord:
        read_array_run(state)


def _new_object(state: State) -> None:
    args = state.stack.pop()
    state.stack[-1] = state.context.construct(state.stack[-1], args, {}, state.opcode_position)


def _new_object_ex(state: State) -> None:
    named, args = state.stack.pop(), state.stack.pop()
    state.stack[-1] = state.context.construct(state.stack[-1], args, named, state.opcode_position)


def _object(state: State) -> None:
    function, *args = state.take_marked()
    state.stack.append(state.context.call(function, tuple(args), state.opcode_position))


def _instance(state: State) -> None:
    function = _find_name(state)
    args = tuple(state.take_marked())
    state.stack.append(state.context.call(function, args, state.opcode_position))


def _global(state: State) -> None:
    state.stack.append(_find_name(state))


def _find_name(state: State) -> Any:
    lines: list[bytes] = []
    try:
        lines += [state.take_line(MAX_NAME_LENGTH)]
        lines += [state.take_line(MAX_NAME_LENGTH)]
    except PickleCutError:
        _note_cut_name(state, lines)
        raise
    return _find(state, *lines)


def _find(state: State, module: bytes, name: bytes) -> Any:
    return state.context.find(str(module, "utf-8"), str(name, "utf-8"), state.protocol, state.opcode_position)


def _note_cut_name(state: State, lines: list[bytes]) -> None:
    """Record a name that the end of the data cuts off: one of Python's readers imports all but its last character."""
    if state.context.events is not None:
        with suppress(UnicodeDecodeError):
            _find(state, *(*lines, state.data[state.position : -1], b"")[:2])


def _stack_global(state: State) -> None:
    name, module = state.stack.pop(), state.stack.pop()
    if type(name) is not str or type(module) is not str:
        raise PickleError("a name is not text", found=f"{short_repr(module)}, {short_repr(name)}")
    state.stack.append(state.context.find(module, name, state.protocol, state.opcode_position))


def _extension(_: State) -> None:
    raise UnsafeError(
        "the pickle looks up a class in the extension registry",
        expected="classes by name, which can be checked",
        found="a number whose meaning depends on the process",
        hint="Nothing was run",
    )


def _out_of_band(_: State) -> None:
    raise UnsupportedError(
        "the pickle refers to a buffer that is not in the file", hint="Save it without buffer_callback"
    )


def _persistent_text(_: State) -> None:
    raise PickleError("a persistent id is a line of text", expected="a description of a storage")


def _protocol(state: State) -> None:
    state.protocol = state.take_number(1)
    if state.protocol > 5:
        raise UnsupportedError("the pickle has a later protocol", expected="at most 5", found=str(state.protocol))


def _frame(state: State) -> None:
    state.enter_frame(state.take_number(8))


def _pop(state: State) -> None:
    if state.stack:
        state.stack.pop()
    else:
        state.stack = state.marks.pop()


def _pop_mark(state: State) -> None:
    state.take_marked()


def _duplicate(state: State) -> None:
    state.stack.append(state.stack[-1])


def _put(state: State) -> None:
    number = memo_number(state.take_line(_MAX_NUMBER_LENGTH))
    if number < 0:
        raise BrokenPickleError("a memo entry has a negative number", found=str(number))
    state.memo[number] = state.stack[-1]


def _get(state: State) -> None:
    state.stack.append(state.memo[memo_number(state.take_line(_MAX_NUMBER_LENGTH))])


def _int_line(state: State) -> None:
    state.stack.append(int_number(state.take_line(_MAX_NUMBER_LENGTH)))


def _long_line(state: State) -> None:
    state.stack.append(long_number(state.take_line(_MAX_NUMBER_LENGTH)))


def _float_line(state: State) -> None:
    state.stack.append(float_number(state.take_line(_MAX_NUMBER_LENGTH)))


def _float(state: State) -> None:
    state.stack.append(_FLOAT(state.take(8))[0])


def _long(state: State, length_nbytes: int) -> None:
    nbytes = state.take_number(length_nbytes, signed=length_nbytes > 1)
    if nbytes < 0:
        raise BrokenPickleError("a length is negative", found=str(nbytes))
    if nbytes > MAX_PICKLED_INT_NBYTES:
        raise LimitError(
            "an integer is too long", expected=f"at most {MAX_PICKLED_INT_NBYTES:,} bytes", found=f"{nbytes:,}"
        )
    state.stack.append(state.take_number(nbytes, signed=True))


def _python2_text(data: bytes) -> str | bytes:
    """Return a `str` of Python 2, which may be either: text if it is ASCII, else bytes."""
    return data.decode("ascii") if data.isascii() else data


def _quoted(state: State) -> None:
    line = state.take_line(len(state.data))
    if len(line) < 2 or line[:1] != line[-1:] or line[:1] not in {b"'", b'"'}:
        raise BrokenPickleError("a text is not in quotes", found=f"{line!r:.100}")
    if _ESCAPED.fullmatch(line, 1, len(line) - 1) is None:
        raise PickleError("a text has an invalid escape", found=f"{line!r:.100}")
    state.stack.append(_python2_text(codecs.escape_decode(line[1:-1])[0]))


def _escaped_text(state: State) -> None:
    state.stack.append(str(state.take_line(len(state.data)), "raw-unicode-escape"))


def _text8(state: State) -> None:
    state.stack.append(str(state.take(state.take_number(8)), "utf-8", "surrogatepass"))


def _signed_length(state: State) -> int:
    length = state.take_number(4, signed=True)
    if length < 0:
        raise BrokenPickleError("a length is negative", found=str(length))
    return length


def refuse_opcode(state: State) -> None:
    """Raise: the byte is not an opcode."""
    raise BrokenPickleError("unknown opcode", found=f"byte {state.data[state.position - 1]:#04x}")


RARE_OPCODES: dict[int, Callable[[State], None]] = {
    ord(symbol): function
    for symbol, function in {
        "0": _pop,
        "1": _pop_mark,
        "2": _duplicate,
        "B": lambda state: state.stack.append(state.take_bytes(4)),
        "C": lambda state: state.stack.append(state.take_bytes(1)),
        "F": _float_line,
        "G": _float,
        "I": _int_line,
        "J": lambda state: state.stack.append(state.take_number(4, signed=True)),
        "L": _long_line,
        "N": lambda state: state.stack.append(None),
        "P": _persistent_text,
        "S": _quoted,
        "T": lambda state: state.stack.append(_python2_text(state.take(_signed_length(state)))),
        "U": lambda state: state.stack.append(_python2_text(state.take(state.take_number(1)))),
        "V": _escaped_text,
        "]": lambda state: state.stack.append([]),
        "a": _append,
        "b": _build,
        "c": _global,
        "d": _dict,
        "e": _appends,
        "g": _get,
        "i": _instance,
        "l": _list,
        "o": _object,
        "p": _put,
        "s": _set_item,
        "u": _set_items,
        "\x80": _protocol,
        "\x81": _new_object,
        "\x82": _extension,
        "\x83": _extension,
        "\x84": _extension,
        "\x87": _tuple3,
        "\x88": lambda state: state.stack.append(True),
        "\x8a": lambda state: _long(state, 1),
        "\x8b": lambda state: _long(state, 4),
        "\x8d": _text8,
        "\x8e": lambda state: state.stack.append(state.take_bytes(8)),
        "\x8f": _empty_set,
        "\x90": _add_items,
        "\x91": _frozen_set,
        "\x92": _new_object_ex,
        "\x93": _stack_global,
        "\x95": _frame,
        "\x96": lambda state: state.stack.append(state.take_bytes(8, is_bytearray=True)),
        "\x97": _out_of_band,
        "\x98": _out_of_band,
    }.items()
}
"""Code to function."""

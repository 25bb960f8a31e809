"""Arrays that follow each other in a dict, as Python's pickler has written them since protocol 4, in one look each.

States of NumPy arrays consist of little else, and executing the 22 opcodes of each takes several times as long. What
is made and noted is what these opcodes make and note, in their order. Whatever differs in any way is left to them;
they say what is wrong.
"""

from __future__ import annotations

import re
from functools import lru_cache
from math import prod
from typing import Any, Final, NamedTuple

from tensorkeep.formats.pickles.machine._stack import State
from tensorkeep.formats.pickles.names import itemsize_of, starts_array
from tensorkeep.formats.pickles.values import ArrayRecord

_ENTRY: Final = rb"(h.|j.{4})"  # BINGET, LONG_BINGET
_EXTENT: Final = rb"(?:K.|M..|J...[\x00-\x7f])"  # BININT1, BININT2, BININT
_SHAPE: Final = rb"(%b\x85\x94|%b{2}\x86\x94|%b{3}\x87\x94|\(%b{4,8}t\x94)" % ((_EXTENT,) * 4)
_match_head = re.compile(
    rb"\x94%b%bK\x00\x85\x94%b\x87\x94R\x94" % ((_ENTRY,) * 3)  # _reconstruct(ndarray, (0,), b"b")
    + rb"\(K\x01%b%b([\x88\x89])(?:B(.{4})|C(.))" % (_SHAPE, _ENTRY),  # version, shape, dtype, order, bytes
    re.DOTALL,
).match
_extents_in = re.compile(rb"K.|M..|J....", re.DOTALL).findall
_TAIL: Final = b"\x94t\x94b"
_TEXT: Final = b"\x8c"  # SHORT_BINUNICODE
_FORTRAN: Final = b"\x88"


class _Head(NamedTuple):
    """What is before the elements of an array.

    Attributes:
        entries: Numbers of what it takes from the memo: the function that it calls with a class and a kind of
            elements, and their dtype.
        shape: Elements along each dimension.
        n_elements: Elements in all.
        is_fortran: Whether the first dimension varies fastest.
        nbytes: Bytes of its elements.
    """

    entries: tuple[int, ...]
    shape: tuple[int, ...]
    n_elements: int
    is_fortran: bool
    nbytes: int


def read_array_run(state: State) -> None:
    """Execute the opcodes of the arrays that come next, each after the text that is its key."""
    while state.is_framed and _reads_array(state):  # outside of frames, long values may have been left out
        pass


def _reads_array(state: State) -> bool:
    """Execute the opcodes of one text and an array, if they are the usual ones, and say so."""
    data, memo, position = state.data, state.memo, state.position
    text_start = position + 2
    text_stop = text_start + int.from_bytes(data[position + 1 : text_start])
    match = _match_head(data, text_stop) if data.startswith(_TEXT, position) else None
    if match is None:
        return False
    head = _described(match[0])
    if max(head.entries) >= len(memo):  # one of these opcodes puts an entry of that number
        return False
    entries: list[Any] = [memo.get(number) for number in head.entries]
    function, cls, kind, dtype = entries
    start = match.end()
    stop = start + head.nbytes
    is_usual = (
        starts_array(function, cls)
        and type(kind) is bytes
        and 0 < head.nbytes == head.n_elements * itemsize_of(dtype)
        and data.startswith(_TAIL, stop)
    )
    if not is_usual:
        return False
    try:
        text = str(data[text_start:text_stop], "utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return False
    elements = data[start:stop]
    state.context.allowance.spend(head.nbytes)
    state.note_place(elements, start)
    array = ArrayRecord(dtype, head.shape, elements, is_fortran=head.is_fortran)
    dtype.is_used = True
    begun = (0,)
    filled = (1, head.shape, dtype, head.is_fortran, elements)
    for made in (text, begun, (cls, begun, kind), array, head.shape, elements, filled):
        memo[len(memo)] = made
    state.stack += (text, array)
    state.position = stop + len(_TAIL)
    return True


@lru_cache(4096)
def _described(data: bytes) -> _Head:
    """Read what is before the elements; thousands of arrays have the same."""
    match = _match_head(data)
    *entries, extents, dtype, order, long, short = match.groups() if match else ()
    shape = tuple(_number(extent) for extent in _extents_in(extents))
    return _Head(
        tuple(map(_number, (*entries, dtype))),
        shape,
        prod(shape),
        order == _FORTRAN,
        int.from_bytes(long or short, "little"),
    )


def _number(argument: bytes) -> int:
    """Return the number after an opcode."""
    return int.from_bytes(argument[1:], "little")

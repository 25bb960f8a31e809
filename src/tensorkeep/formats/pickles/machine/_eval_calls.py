"""The one call of `eval` that is data: `eval('data', {'data': array})`, as PaddlePaddle writes a tensor.

Python compiles the name `data`, finds it in the dict, and returns the array: nothing runs. That is true of this call
alone. An `eval` in a container, an attribute or the arguments of another call may be called with anything later, and
the dict holds all of Python's builtins once `eval` has seen it. So such calls are data only if the pickle does
nothing else with `eval`, with the dict, or with the tuple of both. That is proven by counting: each opcode that
pushes `eval` must be answered by a call, and no opcode may push the dict or the tuple a second time. Names of torch
and persistent ids, which may give back what they are given, must not occur in such a pickle.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import Any, Final

from tensorkeep.formats.pickles.machine._opcode_stream import each_opcode, memo_key
from tensorkeep.formats.pickles.values import ArrayRecord, Unknown

EVAL_NAME: Final = ("builtins", "eval")
_KEY: Final = "data"
_REPEATING: Final = frozenset(("DUP", "PERSID", "BINPERSID"))
"""Opcodes that push again what is on the stack, or may."""
_PUTS: Final = frozenset(("PUT", "BINPUT", "LONG_BINPUT", "MEMOIZE"))
_GETS: Final = frozenset(("GET", "BINGET", "LONG_BINGET"))


class EvalCalls:
    """Every use of `eval` in one pickle.

    Attributes:
        function: The record of `eval`.
        n_named: How often the pickle names it.
    """

    def __init__(self) -> None:
        self.function = Unknown(*EVAL_NAME)
        self.n_named = 0
        self._n_calls = 0
        self._used: list[Any] = []

    def answer(self, args: tuple[Any, ...]) -> ArrayRecord | None:
        """Return what such a call returns; None if it is any other call."""
        if len(args) != 2 or type(args[0]) is not str or args[0] != _KEY:
            return None
        names = args[1]
        array = names.get(_KEY) if type(names) is dict and len(names) == 1 else None
        if type(array) is not ArrayRecord or not array.dtype.text:
            return None
        self._n_calls += 1
        self._used += (args, names)
        return array

    def are_data(
        self, data: bytes, start: int, stop: int, memo: Mapping[int, Any], left_out: Container[int] = ()
    ) -> bool:
        """Say whether the pickle does nothing with `eval` but these calls; `memo` is what it was at the end."""
        used = {id(value) for value in self._used}
        n_pushed = self.n_named
        put: set[int] = set()
        for position, opcode, argument, _ in each_opcode(data, start, left_out):
            if position >= stop:
                break
            if opcode.name in _PUTS:
                key = len(put) if opcode.name == "MEMOIZE" else memo_key(opcode.name, argument)
                if key in put:  # what an entry held before is not known
                    return False
                put.add(key)
            elif opcode.name in _GETS:
                value = memo.get(memo_key(opcode.name, argument))
                if id(value) in used:
                    return False
                n_pushed += value is self.function
            elif opcode.name in _REPEATING:
                return False
        return n_pushed == self._n_calls

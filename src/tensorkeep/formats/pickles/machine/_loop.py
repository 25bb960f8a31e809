"""The loop over the opcodes of a pickle, protocols 0 to 5.

Its contract, which the whole package rests on:

1) It makes None, booleans, numbers, texts and bytes, and tuples, lists, dicts and sets of them.
2) Whatever would import, call or build anything else, it passes to the context, which returns an inert record.
3) It adds items only to objects whose exact type is a plain container, so no other class has a method called.
4) No length or number from the file makes it allocate more than the bytes that are left.
5) It ends: opcodes, memory for copies, depth, and the size of the value as a walk would see it are bounded.
6) Any input gives a value or a `TensorkeepError`, with the position of the opcode.

Where Python's own reader would succeed without calling anything, this one gives the same value.

The loop is one function because a state of 80,000 tensors has 2,500,000 opcodes. It executes the opcodes that such a
file consists of, ordered by how often they occur; functions in `_rare_opcodes.py` execute all others.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from itertools import repeat
from typing import Any

from tensorkeep.errors import LimitError, PickleError, TensorkeepError, UnsupportedError
from tensorkeep.formats.pickles.limits import check_graph
from tensorkeep.formats.pickles.machine._context import Context
from tensorkeep.formats.pickles.machine._eval_calls import EvalCalls
from tensorkeep.formats.pickles.machine._opcodes import OPCODES
from tensorkeep.formats.pickles.machine._rare_opcodes import RARE_OPCODES, refuse_opcode
from tensorkeep.formats.pickles.machine._stack import BrokenPickleError, PickleCutError, State
from tensorkeep.formats.pickles.values import Payload

_U16 = struct.Struct("<H").unpack_from
_U32 = struct.Struct("<I").unpack_from
_STOP = ord(".")
_WIDTHS = {"u1": 1, "u2": 2, "u4": 4, "i4": 4, "u8": 8, "f8": 8, "1+bytes": 1, "4+bytes": 4, "8+bytes": 8}
_NOTHING_LEFT_OUT: Mapping[int, Payload] = {}
_CALLS = frozenset(("REDUCE", "INST", "OBJ", "NEWOBJ", "NEWOBJ_EX", "BUILD"))


def run_pickle(
    data: bytes, start: int, context: Context, payloads: Mapping[int, Payload] = _NOTHING_LEFT_OUT
) -> tuple[Any, int]:
    """Read the pickle that starts at a position; return its value and the position after it.

    `payloads` has the position in the data of each long value that was left out of it. The elements of arrays may be
    such values, and nothing else in the finished value.
    """
    state = State(data, start, context, payloads)
    context.allowance.grow(len(data) - start + sum(map(len, payloads.values())))
    context.evals = EvalCalls()
    try:
        _run(state, context.limits.max_opcodes)
        if state.is_framed and state.position != len(state.data):
            raise PickleError(
                "bytes of a frame follow STOP", expected="none", found=f"{len(state.data) - state.position:,}"
            )
        stop = state.base + state.position
        value = state.stack.pop()
        if state.stack or state.marks:
            raise PickleError("values are left on the stack at the end")
        if state.n_taken != len(payloads):
            raise PickleError("the pickle is not read as it was outlined", expected=f"{len(payloads):,} long values")
        context.judge_evals(data, start, stop, state.memo, payloads)
        max_nodes = context.limits.max_nodes_of(stop - start)
        check_graph(value, max_nodes=max_nodes, max_depth=context.limits.max_depth)
    except TensorkeepError as error:
        _add_position(error, state)
        if isinstance(error, PickleError) and context.mentions("joblib"):
            raise UnsupportedError(
                "a joblib file, which has arrays between the opcodes",
                found=error.message,
                hint="Save arrays with numpy.savez, tensors with tensorkeep.save",
            ) from None
        raise
    except (MemoryError, RecursionError) as error:
        raise LimitError("the pickle needs more memory than there is", found=type(error).__name__) from None
    except (IndexError, KeyError, ValueError, TypeError, OverflowError, struct.error) as error:
        translated: PickleError = _translated(error, state)
        raise translated from None
    return value, stop


def _run(state: State, max_opcodes: int) -> None:
    """Execute opcodes until STOP."""
    opcodes = repeat(None, max_opcodes)
    while not _run_to_end(state, opcodes):
        state.leave_frame()


def _run_to_end(state: State, opcodes: Iterable[None]) -> bool:  # noqa: C901, PLR0912, PLR0915 - one function for speed
    """Execute opcodes until STOP, or until the open frame ends; return whether it was STOP."""
    data, base, context = state.data, state.base, state.context
    memo, stack, position = state.memo, state.stack, state.position
    call, persistent = context.call, context.persistent
    start = position
    try:
        for _ in opcodes:
            start = position
            code = data[position]
            position += 1
            if code == 0x72:  # LONG_BINPUT
                memo[_U32(data, position)[0]] = stack[-1]
                position += 4
            elif code == 0x94:  # MEMOIZE
                memo[len(memo)] = stack[-1]
            elif code == 0x4B:  # BININT1
                stack.append(data[position])
                position += 1
            elif code == 0x68:  # BINGET
                stack.append(memo[data[position]])
                position += 1
            elif code == 0x28:  # MARK
                state.marks.append(stack)
                stack = []
            elif code == 0x74:  # TUPLE
                made = tuple(stack)
                stack = state.marks.pop()
                stack.append(made)
            elif code == 0x52:  # REDUCE
                args = stack.pop()
                stack[-1] = call(stack[-1], args, base + start)
            elif code == 0x86:  # TUPLE2
                last = stack.pop()
                stack[-1] = (stack[-1], last)
            elif code == 0x29:  # EMPTY_TUPLE
                stack.append(())
            elif code == 0x58:  # BINUNICODE
                length = _U32(data, position)[0]
                position += 4
                text = data[position : position + length]
                if len(text) != length:
                    state.refuse_cut(length, len(text))
                stack.append(str(text, "utf-8", "surrogatepass"))
                position += length
            elif code == 0x89:  # NEWFALSE
                stack.append(False)
            elif code == 0x51:  # BINPERSID
                stack[-1] = persistent(stack[-1])
            elif code == 0x71:  # BINPUT
                memo[data[position]] = stack[-1]
                position += 1
            elif code == 0x6A:  # LONG_BINGET
                stack.append(memo[_U32(data, position)[0]])
                position += 4
            elif code == 0x4D:  # BININT2
                stack.append(_U16(data, position)[0])
                position += 2
            elif code == 0x85:  # TUPLE1
                stack[-1] = (stack[-1],)
            elif code == 0x8C:  # SHORT_BINUNICODE
                length = data[position]
                position += 1
                text = data[position : position + length]
                if len(text) != length:
                    state.refuse_cut(length, len(text))
                stack.append(str(text, "utf-8", "surrogatepass"))
                position += length
            elif code == 0x7D:  # EMPTY_DICT
                stack.append({})
            elif code == _STOP:
                state.stack, state.position, state.opcode_position = stack, position, base + start
                return True
            else:
                state.stack, state.position, state.opcode_position = stack, position, base + start
                RARE_OPCODES.get(code, refuse_opcode)(state)
                stack, position = state.stack, state.position
                data, base = state.data, state.base
    except Exception:
        state.opcode_position = base + start
        is_at_end = start == len(data)
        if is_at_end or code not in RARE_OPCODES:  # rare opcodes have changed the stack of the state
            state.stack = stack
        if is_at_end and state.is_framed:
            return False
        raise
    raise LimitError("too many opcodes", expected=f"at most {state.context.limits.max_opcodes:,}", found="more")


def _add_position(error: TensorkeepError, state: State) -> None:
    error.message = f"{error.message} (byte {state.opcode_position + state.n_left_out:,} of the pickle)"


def _translated(error: Exception, state: State) -> PickleError:
    """Return the error of the pickle that made Python raise this one."""
    place = state.opcode_position
    byte = f"(byte {place + state.n_left_out:,} of the pickle)"
    start = place - state.base
    if start >= len(state.data):
        return PickleCutError(f"truncated pickle (byte {place:,})", expected="a STOP", found="the end of the data")
    code = state.data[start]
    if isinstance(error, struct.error | IndexError) and _ends_in_opcode(state, start):
        if state.is_framed:
            return PickleError(f"an opcode crosses the end of its frame {byte}")
        return PickleCutError(f"truncated pickle (byte {place:,})", expected="a STOP", found="the end of the data")
    opcode = OPCODES.get(code)
    name = opcode.name if opcode else "an opcode"
    if isinstance(error, KeyError):
        kind = PickleError if state.start else BrokenPickleError  # an Unpickler used twice keeps its memo
        return kind(f"{name} gets a memo entry that was never put {byte}", found=f"{error}")
    if isinstance(error, IndexError):
        is_short = not state.stack or name not in _CALLS
        kind = BrokenPickleError if is_short else PickleError
        return kind(f"{name} takes more values than the stack has {byte}")
    kind = BrokenPickleError if isinstance(error, UnicodeDecodeError) else PickleError
    return kind(f"{name} cannot be executed {byte}", found=str(error))


def _ends_in_opcode(state: State, start: int) -> bool:
    """Say whether the data ends inside the fixed argument of the opcode that failed."""
    opcode = OPCODES.get(state.data[start])
    width = _WIDTHS.get(opcode.argument, 0) if opcode else 0
    return start + 1 + width > len(state.data)

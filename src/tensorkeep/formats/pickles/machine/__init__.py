"""Executes the opcodes of a pickle without running anything it names.

- `_opcodes`: the table of opcodes.
- `_opcode_stream`: the opcodes of a pickle in order, without executing any.
- `_eval_calls`: the one call of `eval` that is data.
- `_context`: what names stand for, and everything the pickles of one file share.
- `_stack`: the state of one pickle: stack, marks, memo and the open frame.
- `_text_numbers`: numbers written as text.
- `_array_runs`: arrays that follow each other in a dict, in one look each.
- `_loop`: the loop over the opcodes; its contract says what it may do and never does.
- `_rare_opcodes`: one function for each opcode that large files do not consist of.
"""

from tensorkeep.formats.pickles.machine._context import Context, Dangerous, Event
from tensorkeep.formats.pickles.machine._loop import run_pickle
from tensorkeep.formats.pickles.machine._opcode_stream import each_opcode, memo_key
from tensorkeep.formats.pickles.machine._opcodes import OPCODES, Opcode
from tensorkeep.formats.pickles.machine._stack import BrokenPickleError, PickleCutError

__all__ = [
    "OPCODES",
    "BrokenPickleError",
    "Context",
    "Dangerous",
    "Event",
    "Opcode",
    "PickleCutError",
    "each_opcode",
    "memo_key",
    "run_pickle",
]

"""The loop over the opcodes.

- `_opcodes`: the table of opcodes.
- `_context`: what the pickles of one file share.
- `_stack`: the loop over the opcodes.
- `_loop`: the loop over the opcodes.
- `_rare_opcodes`: the loop over the opcodes.
"""

from tensorkeep.formats.pickles.machine._context import Context, Dangerous, Event
from tensorkeep.formats.pickles.machine._loop import run_pickle
from tensorkeep.formats.pickles.machine._opcodes import OPCODES, Opcode
from tensorkeep.formats.pickles.machine._stack import PickleCutError

__all__ = [
    "OPCODES",
    "Context",
    "Dangerous",
    "Event",
    "Opcode",
    "PickleCutError",
    "run_pickle",
]

"""Programs of `torch.export.save` and packages of AOTInductor (`.pt2`): zip archives with weights and programs.

Nothing is run: torch makes Python code of the graph, and a package may hold compiled code.

- `_members`: `Package`: what each member of an archive is.
- `_payloads`: the files that say where each weight is.
- `_pickled`: weights that are pickles, read without running anything.
- `_read`: `parse_pt2`.
- `_graph`: `code_in_graph`: the parts of a graph that are more than operators of torch on tensors.
- `_expressions`: texts that torch evaluates.
"""

from tensorkeep.formats.pt2._graph import code_in_graph
from tensorkeep.formats.pt2._members import LEGACY_GRAPH, MARK, PICKLED_OBJECTS, is_pt2
from tensorkeep.formats.pt2._payloads import pickled_members
from tensorkeep.formats.pt2._read import ProgramContents, parse_pt2

__all__ = [
    "LEGACY_GRAPH",
    "MARK",
    "PICKLED_OBJECTS",
    "ProgramContents",
    "code_in_graph",
    "is_pt2",
    "parse_pt2",
    "pickled_members",
]

"""What the operators of a program do besides computing. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, Literal

import msgspec

from tensorkeep.formats.tensorflow.programs._file_names import FileNames
from tensorkeep.formats.tensorflow.programs._graphs import Graph, Node, Program
from tensorkeep.formats.tensorflow.programs._operators import DEEDS, NAMED_FILES
from tensorkeep.paths import is_inside

_STREAMS: Final = frozenset((b"stdout", b"stderr", b"log(info)", b"log(warning)", b"log(error)", None))
_UNKNOWN: Final = "is not known to only compute"


class Deed(msgspec.Struct, frozen=True):
    """What some nodes of a program do.

    Attributes:
        severity: `"suspicious"` if it may do harm; `"unknown"` if nothing is known about it.
        message: What they do, with the operator's name.
        position: Byte of the file at which the first of them is described; None if it is not about a node.
    """

    severity: Literal["suspicious", "unknown"]
    message: str
    position: int | None = None


def deeds_of(program: Program) -> list[Deed]:
    """Return what a program does, once for each operator and deed, with the number and the first of its nodes."""
    names = FileNames(program)
    found: dict[tuple[str, str], list[tuple[Graph, Node]]] = {}
    for graph, node in program.operators:
        deed = _deed(graph, node, names, program)
        if deed is not None:
            found.setdefault((node.operator, deed), []).append((graph, node))
    return [*_outside(program), *(_summed(*key, nodes) for key, nodes in found.items())]


def _deed(graph: Graph, node: Node, names: FileNames, program: Program) -> str | None:
    operator = node.operator
    if operator in program.functions:
        return None
    if operator in NAMED_FILES:
        places, deed = NAMED_FILES[operator]
        return None if names.is_given(graph, node, places) else f"{deed} that the program names"
    if operator == "PrintV2":
        return None if node.text in _STREAMS else "writes a file"
    return DEEDS.get(operator, _UNKNOWN)


def _summed(operator: str, deed: str, nodes: list[tuple[Graph, Node]]) -> Deed:
    graph, first = nodes[0]
    where = f"`{first.name[:100]}`" + (f" of function `{graph.name[:100]}`" if graph.name else "")
    more = f" and {len(nodes) - 1:,} more" if len(nodes) > 1 else ""
    severity: Literal["suspicious", "unknown"] = "unknown" if deed == _UNKNOWN else "suspicious"
    return Deed(severity, f"the operator {operator[:100]} {deed}: {where}{more}", first.position)


def _outside(program: Program) -> Iterator[Deed]:
    for file in dict.fromkeys(file for files in program.assets.values() for file in files):
        if not is_inside(file):
            yield Deed("suspicious", f"a file of the model is outside its directory: {file[:200]!r}")

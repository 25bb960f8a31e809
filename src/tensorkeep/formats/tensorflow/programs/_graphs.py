"""The graphs of a program, walked once: every operator, and of the nodes those that may take part in a file's name.

Fields have the numbers of TensorFlow's SavedModel, MetaGraphDef, GraphDef, FunctionDef, NodeDef and AttrValue.
"""

from __future__ import annotations

from typing import Final

import msgspec

from tensorkeep.errors import FormatError, LimitError
from tensorkeep.formats.protobuf import LENGTH, Field, MessageReader
from tensorkeep.formats.tensorflow.programs._saved_objects import SavedObjects, read_saved_objects
from tensorkeep.transport import ByteRange, ByteSource

_MAX_TEXT_NBYTES: Final = 2**16
_MAX_KEPT: Final = 1_000_000
"""Nodes that are kept; the largest programs have about 100,000 variables, each with a few such nodes."""

_KEPT_OPERATORS: Final = (
    "Const Placeholder PlaceholderV2 PlaceholderWithDefault StringJoin ShardedFilename Identity Pack Select SelectV2 "
    "StaticRegexFullMatch PartitionedCall StatefulPartitionedCall VarHandleOp ReadVariableOp AssignVariableOp PrintV2"
)
_KEPT: Final = frozenset(_KEPT_OPERATORS.split())
"""Operators that take part in names of files."""


class Node(msgspec.Struct, frozen=True):
    """An operator at one place of a graph.

    Attributes:
        name: Its name in the graph.
        operator: What it does.
        position: Byte of the file at which it is described.
        inputs: The nodes and arguments whose values it takes.
        functions: Functions of the program that it may call.
        text: The value of a constant that is one string, or an attribute that the operator has as text.
    """

    name: str
    operator: str
    position: int
    inputs: tuple[str, ...] = ()
    functions: tuple[str, ...] = ()
    text: bytes | None = None


class Graph(msgspec.Struct, frozen=True):
    """A main graph or a function.

    Attributes:
        name: Name of the function; empty for a main graph.
        arguments: Names of its arguments.
        nodes: Name to node, for those that are kept.
    """

    name: str
    arguments: list[str] = []
    nodes: dict[str, Node] = {}


class Program(msgspec.Struct, frozen=True):
    """A main graph with its functions.

    Attributes:
        main: The main graph.
        functions: Name to function.
        operators: Every node that may do more than compute, with its graph.
        assets: Name of a node that gives the path of a file of the model, to the names that the program has for it.
        saved: Objects beside the graph.
    """

    main: Graph
    functions: dict[str, Graph] = {}
    operators: list[tuple[Graph, Node]] = []
    assets: dict[str, list[str]] = {}
    saved: SavedObjects = SavedObjects()


class ProgramReader:
    """Walks the programs of a file; nodes of an operator are not listed if `is_harmless` is true of its name."""

    def __init__(self, source: ByteSource, is_harmless: frozenset[str]) -> None:
        self._reader = MessageReader(source)
        self._harmless = is_harmless
        self._n_kept = 0

    def saved_model(self) -> list[Program]:
        """Read a SavedModel: one program for each of its uses."""
        return [self._meta_graph(field.span) for field in self._reader.fields() if _is_message(field, 2)]

    def meta_graph(self) -> list[Program]:
        """Read a `.meta` file."""
        return [self._meta_graph(None)]

    def graph(self) -> list[Program]:
        """Read a graph alone."""
        return [self._program(None)]

    def _meta_graph(self, span: ByteRange | None) -> Program:
        program: Program | None = None
        assets: dict[str, list[str]] = {}
        saved: SavedObjects | None = None
        for field in self._reader.fields(span):
            if _is_message(field, 2):
                if program is not None:
                    raise FormatError("a program has two graphs")
                program = self._program(field.span)
            elif _is_message(field, 6):
                node, file = self._asset(field)
                assets.setdefault(node, []).append(file)
            elif _is_message(field, 7):
                if saved is not None:
                    raise FormatError("a program has two tables of objects")
                saved = read_saved_objects(self._reader, field)
        return msgspec.structs.replace(program or Program(Graph("")), assets=assets, saved=saved or SavedObjects())

    def _program(self, span: ByteRange | None) -> Program:
        program = Program(Graph("", [], {}), {}, [])
        for field in self._reader.fields(span):
            if _is_message(field, 1):
                self._add_node(field, program.main, program)
            elif _is_message(field, 2):
                for function in self._reader.fields(field.span):
                    if _is_message(function, 1):
                        self._add_function(function, program)
        return program

    def _add_function(self, field: Field, program: Program) -> None:
        graph = Graph("", [], {})
        nodes: list[Field] = []
        for part in self._reader.fields(field.span):
            if _is_message(part, 1):
                graph = self._signature(part)
            elif _is_message(part, 3):
                nodes.append(part)
        if graph.name in program.functions:
            raise FormatError("two functions of a program have the same name", found=graph.name[:200])
        program.functions[graph.name] = graph
        for node in nodes:
            self._add_node(node, graph, program)

    def _signature(self, field: Field) -> Graph:
        graph = Graph("", [], {})
        for part in self._reader.fields(field.span):
            if _is_message(part, 1):
                graph = Graph(self._text(part), graph.arguments, {})
            elif _is_message(part, 2):
                names = [self._text(inner) for inner in self._reader.fields(part.span) if _is_message(inner, 1)]
                graph.arguments.append(names[-1] if names else "")
        return graph

    def _add_node(self, field: Field, graph: Graph, program: Program) -> None:
        name, operator = "", ""
        inputs: list[str] = []
        functions: list[str] = []
        text: bytes | None = None
        for part in self._reader.fields(field.span):
            if _is_message(part, 1):
                name = self._text(part)
            elif _is_message(part, 2):
                operator = self._text(part)
            elif _is_message(part, 3):
                inputs.append(self._text(part))
            elif _is_message(part, 5):
                called, value = self._attribute(part)
                functions += called
                text = value if value is not None else text
        data = tuple(each for each in inputs if not each.startswith("^"))
        node = Node(name, operator, field.start, data, tuple(functions), text)
        if operator in _KEPT or functions or operator in program.functions:
            if name in graph.nodes:
                raise FormatError("two nodes of a graph have the same name", found=name[:200])
            self._n_kept += 1
            graph.nodes[name] = node
        if operator not in self._harmless:
            self._n_kept += 1
            program.operators.append((graph, node))
        if self._n_kept > _MAX_KEPT:
            raise LimitError("a program has too many nodes", expected=f"at most {_MAX_KEPT:,} that are kept")

    def _attribute(self, field: Field) -> tuple[list[str], bytes | None]:
        """Return the functions that an attribute names, and its text if it is one that matters."""
        key = ""
        functions: list[str] = []
        text: bytes | None = None
        for part in self._reader.fields(field.span):
            if _is_message(part, 1):
                key = self._text(part)
            elif _is_message(part, 2):
                for value in self._reader.fields(part.span):
                    if _is_message(value, 10):
                        functions += self._function_names(value)
                    elif _is_message(value, 1):
                        for item in self._reader.fields(value.span):
                            functions += self._function_names(item) if _is_message(item, 9) else []
                    elif _is_message(value, 2) and key in {"output_stream", "shared_name"}:
                        text = self._bytes(value)
                    elif _is_message(value, 8) and key == "value":
                        text = self._constant(value)
        return functions, text

    def _function_names(self, field: Field) -> list[str]:
        return [self._text(part) for part in self._reader.fields(field.span) if _is_message(part, 1)]

    def _constant(self, field: Field) -> bytes | None:
        """Return the value of a tensor that is one string."""
        strings = [part for part in self._reader.fields(field.span) if _is_message(part, 8)]
        return self._bytes(strings[0]) if len(strings) == 1 else None

    def _asset(self, field: Field) -> tuple[str, str]:
        node, file = "", ""
        for part in self._reader.fields(field.span):
            if _is_message(part, 1):
                names = [self._text(inner) for inner in self._reader.fields(part.span) if _is_message(inner, 1)]
                node = names[-1].partition(":")[0] if names else ""
            elif _is_message(part, 2):
                file = self._text(part)
        return node, file

    def _text(self, field: Field) -> str:
        return self._reader.read_text(field.span, max_nbytes=_MAX_TEXT_NBYTES)

    def _bytes(self, field: Field) -> bytes | None:
        if len(field.span) > _MAX_TEXT_NBYTES:
            return None
        return self._reader.read(field.span, max_nbytes=_MAX_TEXT_NBYTES)


def _is_message(field: Field, number: int) -> bool:
    """Say whether it is the field of this number, and has a length: a message or a text."""
    return field.number == number and field.wire_type == LENGTH

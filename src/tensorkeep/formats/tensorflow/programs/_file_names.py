"""Who names the files that a program saves to, restores from and reads: its caller, or the program. Pure.

Variables are saved to a path that is an argument, and vocabularies are read from assets of the model. A name is
followed from the operator back to its origin, through calls of functions.
"""

from __future__ import annotations

from typing import Final

from tensorkeep.formats.tensorflow.programs._graphs import Graph, Node, Program

_CALLS: Final = {"PartitionedCall", "StatefulPartitionedCall"}
_USUAL_DEFAULT: Final = b"model"
"""What savers of TensorFlow 1 are called if nobody names a file."""

_MAX_STEPS: Final = 100_000
"""Steps that are followed in one program; a longer way counts as the program's own name."""

_MAX_DEPTH: Final = 100


class FileNames:
    """Traces the names of files in one program."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._n_left = _MAX_STEPS
        self._calls: dict[str, list[tuple[Graph, Node]]] = {}
        for graph in (program.main, *program.functions.values()):
            for node in graph.nodes.values():
                for function in {*node.functions, node.operator} & program.functions.keys():
                    self._calls.setdefault(function, []).append((graph, node))

    def is_given(self, graph: Graph, node: Node, places: tuple[int, ...]) -> bool:
        """Say whether all these inputs of a node come from the caller, or are assets of the model."""
        return all(place < len(node.inputs) and self._is_given(graph, node.inputs[place], 0) for place in places)

    def _is_given(self, graph: Graph, reference: str, depth: int) -> bool:
        self._n_left -= 1
        if self._n_left < 0 or depth > _MAX_DEPTH:
            return False
        name = reference.partition(":")[0]
        if name in graph.arguments:
            return self._is_given_argument(graph, graph.arguments.index(name), depth + 1)
        node = graph.nodes.get(name)
        is_asset = not graph.name and name in self._program.assets
        return node is not None and (is_asset or self._is_passed_on(graph, node, depth + 1))

    def _is_passed_on(self, graph: Graph, node: Node, depth: int) -> bool:
        """Say whether what a node gives is such a name, or begins with one."""
        first = node.inputs[0] if node.inputs else ""
        match node.operator:
            case "Placeholder" | "PlaceholderV2":
                found = True
            case "PlaceholderWithDefault":
                found = self._is_usual_default(graph, first) or self._is_given(graph, first, depth)
            case "Pack":
                found = all(self._is_given(graph, part, depth) for part in node.inputs)
            case "Identity" | "ShardedFilename":
                found = self._is_given(graph, first, depth)
            case "StringJoin":
                is_begun = self._is_given(graph, first, depth)
                found = is_begun and all(self._is_suffix(graph, each) for each in node.inputs[1:])
            case "ReadVariableOp":
                found = self._is_given_variable(graph, first, depth)
            case _:
                found = False
        return found

    def _is_usual_default(self, graph: Graph, reference: str) -> bool:
        node = graph.nodes.get(reference.partition(":")[0])
        return node is not None and node.operator == "Const" and node.text == _USUAL_DEFAULT

    def _is_given_argument(self, graph: Graph, place: int, depth: int) -> bool:
        """Say whether every call of a function passes such a name; one without calls is called from outside.

        Calls from outside pass the last arguments as they were saved, and only files of the model are such names.
        Others may be left out, and are then as they were saved, too.
        """
        if graph.name in self._program.saved.with_names:
            return False
        bound = self._program.saved.bound.get(graph.name, ())
        n_passed = len(graph.arguments) - len(bound)
        if place >= n_passed and bound[place - n_passed] not in self._program.saved.assets:
            return False
        return all(
            node.operator in {*_CALLS, graph.name}
            and place < len(node.inputs)
            and self._is_given(caller, node.inputs[place], depth)
            for caller, node in self._calls.get(graph.name, ())
        )

    def _is_given_variable(self, graph: Graph, handle: str, depth: int) -> bool:
        """Say whether a variable of the main graph gets only such names, and nothing else can change it."""
        main = self._program.main
        variable = main.nodes.get(handle.partition(":")[0])
        if graph is not main or variable is None or variable.operator != "VarHandleOp" or not variable.text:
            return False
        same = {node.name for node in main.nodes.values() if _is_variable(node, variable.text)}
        hidden = any(
            _is_variable(node, variable.text)
            for function in self._program.functions.values()
            for node in function.nodes.values()
        )
        users = [node for node in main.nodes.values() if same & {each.partition(":")[0] for each in node.inputs}]
        values = [node.inputs[1] for node in users if node.operator == "AssignVariableOp" and len(node.inputs) > 1]
        is_passed_on = any(node.operator not in {"AssignVariableOp", "ReadVariableOp"} for node in users)
        return bool(values) and not (hidden or is_passed_on) and all(self._is_given(main, v, depth) for v in values)

    def _is_suffix(self, graph: Graph, reference: str) -> bool:
        """Say whether it is a constant, or one of several, that stays in the directory of what it is added to."""
        node = graph.nodes.get(reference.partition(":")[0])
        if node is None:
            return False
        if node.operator in {"Select", "SelectV2"}:
            parts = [graph.nodes.get(each.partition(":")[0]) for each in node.inputs[1:]]
            return all(part is not None and _is_plain(part) for part in parts)
        return _is_plain(node)


def _is_variable(node: Node, shared_name: bytes) -> bool:
    return node.operator == "VarHandleOp" and node.text == shared_name


def _is_plain(node: Node) -> bool:
    return node.operator == "Const" and node.text is not None and b".." not in node.text

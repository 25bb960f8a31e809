"""What torch would do with the graph of a program beyond operators on tensors. Pure.

`torch.export.load` makes Python code of a graph and runs it, evaluates sizes, follows dotted names from `torch`, and
imports modules that the description of inputs names. So every text of a graph is looked at, and each that is not
known to be harmless is reported.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from tensorkeep.errors import FormatError
from tensorkeep.formats.pt2._expressions import is_expression, is_guard, is_name

_TARGETS: Final = frozenset({"target", "as_operator"})
_SPECS: Final = frozenset({"in_spec", "out_spec"})
_FREE: Final = frozenset({"metadata", "as_string", "as_strings", "doc_string"})
"""Keys of texts that never get into code: torch keeps them, or passes them on as texts."""

_OPERATOR: Final = (
    r"(?:__(?:and|or|xor|lshift|rshift|iand|ior|ixor|ilshift|irshift)__|_{0,2}[A-Za-z](?:_?[A-Za-z0-9])*_?)"
)
_HIGHER: Final = (
    *("cond", "while_loop", "map", "map_impl", "scan", "associative_scan", "wrap_with_set_grad_enabled"),
    *("wrap_with_autocast", "out_dtype", "flex_attention", "invoke_subgraph", "hints_wrapper"),
    *("auto_functionalized", "auto_functionalized_v2", "with_effects"),
)
_VISION: Final = ("nms", "roi_align", "roi_pool", "ps_roi_align", "ps_roi_pool", "deform_conv2d")
"""Operators on graphs of the same program, and operators of torchvision that touch no file."""

_is_torch_operator = re.compile(
    rf"torch\.ops\.(?:(?:aten|prims|quantized|quantized_decomposed)\.{_OPERATOR}"
    rf"|higher_order\.(?:{'|'.join(_HIGHER)})|torchvision\.(?:{'|'.join(_VISION)}))(?:\.{_OPERATOR})?"
).fullmatch
_is_number_operator = re.compile(
    r"(?:_operator|math)\.[a-z0-9_]*[a-z0-9]|torch\.(?:sym_[a-z]+|_sym_[a-z0-9]+)"
).fullmatch
_IMPURE: Final = frozenset({
    *("_operator.call", "_operator.attrgetter", "_operator.methodcaller", "_operator.setitem", "_operator.delitem"),
})
_FILES: Final = ("torch.ops.aten.from_file",)
_IMPORTS: Final = {"__enum__": "fqn", "default_factory_module": "default_factory_module"}
"""Keys in the description of inputs for which torch imports a module, and the key of its name."""

_MAX_DEPTH: Final = 64


def code_in_graph(text: bytes) -> Iterator[str]:
    """Yield what torch would evaluate, call or import, for each place that is not known to be harmless."""
    try:
        graph = msgspec.json.decode(text)
    except (ValueError, RecursionError) as error:
        raise FormatError("the graph of the program is not JSON", found=f"{error!s:.200}") from None
    yield from dict.fromkeys(_code_in(graph))


def _code_in(graph: Any) -> Iterator[str]:
    waiting: list[tuple[str, Any]] = [("", graph)]
    while waiting:
        key, node = waiting.pop()
        if isinstance(node, dict):
            for name, value in node.items():
                if not (is_name(name) or is_expression(name)):
                    yield f"the name {name!r:.200} may get into the code of the graph"
                if name not in _FREE:
                    waiting.append((name, value))
        elif isinstance(node, list):
            waiting.extend((key, item) for item in node)
        elif isinstance(node, str):
            yield from _code_in_text(key, node)


def _code_in_text(key: str, text: str) -> Iterator[str]:
    if key in _TARGETS:
        if not _is_harmless_target(text):
            yield f"torch.export calls {text!r:.200}, which is not known to be an operator on tensors"
    elif key in _SPECS:
        yield from _imports_in(text)
    elif key == "expr_str":
        if not is_expression(text):
            yield f"torch.export evaluates {text!r:.200} as Python"
    elif key == "guards_code":
        if not is_guard(text):
            yield f"torch.export runs the guard {text!r:.200}"
    elif not is_name(text):
        yield f"{text!r:.200} may get into the code of the graph"


def _is_harmless_target(target: str) -> bool:
    if target in _IMPURE or target.startswith(_FILES):
        return False
    return _is_torch_operator(target) is not None or _is_number_operator(target) is not None


def _imports_in(spec: str) -> Iterator[str]:
    """Yield the modules that torch imports for a description of inputs or outputs, JSON within JSON."""
    waiting: list[tuple[int, Any]] = [(0, spec)] if spec else []
    while waiting:
        depth, node = waiting.pop()
        if depth > _MAX_DEPTH:
            yield "the description of its inputs is nested too deeply to look into"
            return
        if isinstance(node, dict):
            yield from (
                f"torch.export imports {str(node.get(name))!r:.200}"
                for mark, name in _IMPORTS.items()
                if mark in node
            )
            yield from (f"{name!r:.200} may get into the code of the graph" for name in node if not is_name(name))
            waiting.extend((depth + 1, value) for value in node.values())
        elif isinstance(node, list):
            waiting.extend((depth + 1, item) for item in node)
        elif isinstance(node, str) and (depth == 0 or node[:1] in {"[", "{", '"'}):
            try:
                waiting.append((depth + 1, msgspec.json.decode(node)))
            except (ValueError, RecursionError):
                yield f"the description of its inputs is not JSON: {node!r:.100}"
        elif isinstance(node, str) and not is_name(node):
            yield f"{node!r:.200} may get into the code of the graph"

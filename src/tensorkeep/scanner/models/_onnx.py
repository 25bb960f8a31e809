"""ONNX models: graphs of operators, which run no code of the file, but may need a library, or a file elsewhere."""

from __future__ import annotations

from typing import Final

from tensorkeep.formats.onnx import MAGICS, OnnxModel, is_onnx, parse_onnx
from tensorkeep.paths import is_inside
from tensorkeep.scanner._content import Content
from tensorkeep.scanner._findings import FindingLog
from tensorkeep.scanner.models._base import ModelForm
from tensorkeep.texts import listed

_SUFFIX: Final = ".onnx"
_MAX_NAME_LENGTH: Final = 200

_WRITTEN: Final = (0, 1, 2, 3, 5)
"""How fields of a message may be written: as a varint, 8 bytes, bytes, a group or 4 bytes."""

_KNOWN_DOMAINS: Final = frozenset((
    *("", "ai.onnx", "ai.onnx.ml", "ai.onnx.training", "ai.onnx.preview", "ai.onnx.preview.training"),
    *("com.microsoft", "com.microsoft.experimental", "com.microsoft.nchwc", "com.ms.internal.nhwc"),
))
"""Domains whose operators ONNX defines, or ONNX Runtime has built in."""

_RUNS_CODE: Final = {
    "PythonOp": "ONNX Runtime calls the Python function that the model names",
    "PythonOpGrad": "ONNX Runtime calls the Python function that the model names",
    "PyOp": "onnxruntime-extensions calls a Python function",
    "PyCustomOp": "onnxruntime-extensions calls a Python function",
    "PyFunc": "a program may call the Python function that the model names",
    "EPContext": "ONNX Runtime loads a program compiled for an accelerator, in the model or in a file that it names",
    "ATen": "ONNX Runtime calls the function of torch that the model names",
}
"""Operators that run more than they compute, in whatever domain."""


def _is_model(content: Content) -> bool:
    head = content.head()
    if content.name.lower().endswith(_SUFFIX):
        return _may_be_message(head)
    return head.startswith(MAGICS) and is_onnx(content.alone())


def _may_be_message(head: bytes) -> bool:
    """Say whether the first byte can begin a field, even one that ONNX does not know and passes over."""
    return bool(head) and head[0] >> 3 > 0 and head[0] & 7 in _WRITTEN


def _scan_model(content: Content, log: FindingLog) -> bool:
    """Report operators that no runtime has built in, and tensors that would be read from elsewhere."""
    model = parse_onnx(content.alone())
    _scan_operators(model, content, log)
    outside = [
        f"`{name[:_MAX_NAME_LENGTH]}` from {tensor.location[:_MAX_NAME_LENGTH]!r}"
        for name, tensor in model.external.items()
        if not is_inside(tensor.location.removeprefix("./"))
    ]
    if outside:
        text = f"a program may read files outside the model's directory as tensors: {listed(outside)}"
        log.add("suspicious", text, content)
    return True


def _scan_operators(model: OnnxModel, content: Content, log: FindingLog) -> None:
    custom: dict[str, list[str]] = {}
    for operator, node in model.operators.items():
        if operator.name in _RUNS_CODE:  # even if the model defines one: a runtime may have its own
            text = f"operator {_shown(operator)} at node `{node[:_MAX_NAME_LENGTH]}`: {_RUNS_CODE[operator.name]}"
            log.add("suspicious", text, content)
        elif operator.domain not in _KNOWN_DOMAINS and operator not in model.own_operators:
            custom.setdefault(operator.domain[:_MAX_NAME_LENGTH], []).append(operator.name[:_MAX_NAME_LENGTH])
    for domain, names in custom.items():
        text = f"operators of {domain} need a library of their own, which runs code: {listed(names)}"
        log.add("unknown", text, content)


def _shown(operator: tuple[str, str]) -> str:
    domain, name = operator
    return f"{domain[:_MAX_NAME_LENGTH]}.{name}" if domain else name


ONNX_MODEL: Final = ModelForm("ONNX model", _is_model, _scan_model)

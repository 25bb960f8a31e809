"""What Keras would run or import to build a model from its configuration. Pure.

Which classes and functions Keras takes depends on its version: before 3.9 it imported any module that a configuration
names. So a name is passed over only if every version finds it among Keras's own layers, losses and the like.
"""

from __future__ import annotations

import builtins
from collections.abc import Iterator
from typing import Any, Final

from tensorkeep.formats.pickles.names import danger_of
from tensorkeep.scanner._report import Severity

Fault = tuple[Severity, str]
"""What Keras would do, and how bad it is."""

_CODE: Final = {
    "Lambda": "a Lambda layer of Keras is built from Python code in the file",
    "__lambda__": "Keras builds a function from Python code in the file",
    "TorchModuleWrapper": "Keras unpickles a torch module in the file",
    "TFSMLayer": "Keras loads a program of TensorFlow from a path that the file names",
    "JaxLayer": "Keras calls functions that the file names",
    "FlaxLayer": "Keras calls functions that the file names",
}
_LAMBDAS: Final = frozenset(("lambda", "raw"))
"""Values of `function_type` with which Keras 2 takes `function` for Python code, whatever the class is called."""

_HOMES: Final = frozenset(("keras", "tf_keras", "keras_hub", "keras_nlp", "keras_cv"))
_TENSORFLOW: Final = ("tensorflow.keras", "tensorflow.python.keras")
_TYPE: Final = "__typespec__"
"""The class of types of tensors, which are in many modules of TensorFlow."""

_PURE: Final = frozenset((
    *("activations", "constraints", "initializers", "losses", "metrics", "ops", "optimizers", "random"),
    *("regularizers", "schedules"),
))
"""Modules of Keras whose functions only compute; others write files, load models or switch its safe mode off."""

_READ: Final = ("vocabulary", "vocabulary_file", "merges", "proto")
"""Arguments of layers, columns and tokenizers that are read from a path or URL if they are text."""

_PURE_OPS: Final = frozenset((
    *("__operators__", "bitwise", "dtypes", "image", "linalg", "math", "nn", "quantization", "ragged", "random"),
    *("sets", "signal", "sparse", "strings"),
))
_IMPURE_OPS: Final = frozenset(("load_library", "load_op_library", "numpy_function", "py_function", "print"))
"""Modules of TensorFlow whose functions only compute, and functions outside modules that do more."""

_MAX_NAME_LENGTH: Final = 200


def faults_in(configuration: Any) -> Iterator[Fault]:
    """Yield what Keras would run, import or read for any object in a configuration."""
    for node in _dicts_in(configuration):
        if isinstance(node.get("class_name"), str):
            yield from _faults_of(node, node["class_name"])
        if isinstance(node.get("function_type"), str) and node["function_type"] in _LAMBDAS:
            yield "suspicious", _CODE["Lambda"]


def _dicts_in(configuration: Any) -> Iterator[dict[str, Any]]:
    waiting = [configuration]
    while waiting:
        node = waiting.pop()
        if isinstance(node, list):
            waiting.extend(node)
        elif isinstance(node, dict):
            waiting.extend(node.values())
            yield node


def _faults_of(node: dict[str, Any], class_name: str) -> Iterator[Fault]:
    if class_name in _CODE:
        yield "suspicious", _CODE[class_name]
        return
    module, registered, config = node.get("module"), node.get("registered_name"), node.get("config")
    name = config if class_name == "function" and isinstance(config, str) else class_name
    if isinstance(module, str) and not (class_name == _TYPE and module.startswith("tensorflow.")):
        yield from _faults_of_name(module, name, is_function=class_name == "function" or not name[:1].isupper())
    for text in dict.fromkeys((registered, name)):
        if isinstance(text, str) and ">" in text:
            yield "unknown", f"Keras needs {_cut(text)}, which another program must register"
    if class_name == "TFOpLambda" and isinstance(config, dict) and isinstance(config.get("function"), str):
        yield from _faults_of_op(config["function"])
    paths = {key: config[key] for key in _READ if key in config} if isinstance(config, dict) else {}
    for argument, value in paths.items():
        if isinstance(value, str):
            yield "suspicious", f"Keras reads the {argument} of {_cut(class_name)} from {_cut(value)}"


def _faults_of_name(module: str, name: str, *, is_function: bool) -> Iterator[Fault]:
    home, *inner = module.split(".")
    if home == "builtins" and not hasattr(builtins, name):
        return  # where Keras says that its own functions, and registered ones, are
    danger = danger_of(module, name)
    if danger is not None and danger.is_certain:
        yield "dangerous", f"Keras before 3.9 would import {_cut(f'{module}.{name}')}, which {danger.reason}"
    elif home not in _HOMES and not f"{module}.".startswith(tuple(f"{each}." for each in _TENSORFLOW)):
        yield "unknown", f"Keras would import {_cut(f'{module}.{name}')}, which is not known to be data"
    elif is_function and not name.startswith("__") and _PURE.isdisjoint(inner):
        yield "suspicious", f"Keras would call {_cut(f'{module}.{name}')}, which is not a part of a model"


def _faults_of_op(function: str) -> Iterator[Fault]:
    home, dot, _ = function.partition(".")
    if home not in _PURE_OPS if dot else home in _IMPURE_OPS:
        yield "suspicious", f"Keras 2 would call tf.{_cut(function)}, which may touch files or run code"


def _cut(text: str) -> str:
    return text[:_MAX_NAME_LENGTH]

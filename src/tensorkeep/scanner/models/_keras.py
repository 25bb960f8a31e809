"""The configuration of a Keras model, which names classes and may contain code."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

from tensorkeep.scanner._content import Content
from tensorkeep.scanner._findings import FindingLog
from tensorkeep.scanner.models._base import ModelForm

_NAME: Final = "config.json"
_MAX_NBYTES: Final = 64 * 2**20
_CODE: Final = {
    "Lambda": "a Lambda layer of Keras is built from Python code in the file",
    "__lambda__": "Keras builds a function from Python code in the file",
    "TorchModuleWrapper": "Keras unpickles a torch module in the file",
    "TFSMLayer": "Keras loads a program of TensorFlow from a path that the file names",
    "JaxLayer": "Keras calls functions that the file names",
    "FlaxLayer": "Keras calls functions that the file names",
}
_HOMES: Final = frozenset(("keras", "tf_keras", "tensorflow", "keras_hub", "keras_nlp", "keras_cv"))
_MAX_NAME_LENGTH: Final = 200


def _is_config(content: Content) -> bool:
    """Say whether Keras may take a file for the configuration of a model."""
    return content.name.endswith(_NAME)


def _scan_config(content: Content, log: FindingLog) -> bool:
    """Report the classes in a configuration that Keras would import or build, and return whether there are any."""
    if content.nbytes > _MAX_NBYTES:
        log.add("unreadable", "the configuration is too long to scan", content)
        return False
    try:
        configuration = json.loads(content.read(content.nbytes))
    except ValueError:
        return False
    except RecursionError:
        log.add("unreadable", "the configuration is nested too deeply", content)
        return False
    before = len(log.findings)
    for module, name in _classes_in(configuration):
        if name in _CODE:
            log.add("suspicious", _CODE[name], content)
        elif isinstance(module, str) and module.partition(".")[0] not in _HOMES:
            named = f"{module}.{name}"[:_MAX_NAME_LENGTH]
            log.add("unknown", f"Keras would import {named}, which is not known to be data", content)
    return len(log.findings) > before


def _classes_in(configuration: Any) -> Iterator[tuple[Any, str]]:
    """Yield the module, which may be any JSON value, and the name of each class."""
    waiting = [configuration]
    while waiting:
        node = waiting.pop()
        if isinstance(node, list):
            waiting.extend(node)
        elif isinstance(node, dict):
            waiting.extend(node.values())
            if isinstance(node.get("class_name"), str):
                yield node.get("module"), node["class_name"]


KERAS_CONFIG: Final = ModelForm("Keras configuration", _is_config, _scan_config)

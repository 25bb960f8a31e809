"""The configuration of a Keras model, which names classes and may contain code."""

from __future__ import annotations

import json
from typing import Final

from tensorkeep.scanner._content import Content
from tensorkeep.scanner._findings import FindingLog
from tensorkeep.scanner.models._base import ModelForm
from tensorkeep.scanner.models._keras_config import faults_in

_NAME: Final = "config.json"
_MAX_NBYTES: Final = 64 * 2**20


def _is_config(content: Content) -> bool:
    """Say whether Keras may take a file for the configuration of a model: `model_from_json` takes any text."""
    return content.name.endswith(_NAME) or content.head().lstrip()[:1] in {b"{", b""}


def _scan_config(content: Content, log: FindingLog) -> bool:
    """Report what Keras would run for a configuration, and return whether it is one."""
    if content.nbytes > _MAX_NBYTES:
        if content.name.endswith(_NAME):
            log.add("unreadable", "the configuration is too long to scan", content)
        return False
    text = content.read(content.nbytes)
    if content.name.endswith(_NAME) or _is_of_an_object(text):
        return scan_configuration(text, content, log)
    return False


def _is_of_an_object(text: bytes) -> bool:
    """Say whether Keras would build an object of a text: all of it is one, and not only something in it."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):  # Keras fails on it likewise
        return False
    return isinstance(found, dict) and isinstance(found.get("class_name"), str) and "config" in found


def scan_configuration(text: str | bytes, content: Content, log: FindingLog) -> bool:
    """Report what Keras would run for a configuration in JSON, and return whether there is anything."""
    try:
        configuration = json.loads(text)
    except ValueError:
        return False
    except RecursionError:
        log.add("unreadable", "the configuration is nested too deeply", content)
        return False
    faults = dict.fromkeys(faults_in(configuration))
    for severity, message in faults:
        log.add(severity, message, content)
    return bool(faults)


KERAS_CONFIG: Final = ModelForm("Keras configuration", _is_config, _scan_config)

"""Chat templates beside the weights: in the configuration of a tokenizer or processor, or in a file of their own.

transformers renders them in Jinja's sandbox, but it is not the only program that reads these files.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

from tensorkeep.scanner._content import Content
from tensorkeep.scanner._findings import FindingLog
from tensorkeep.scanner.models._base import ModelForm
from tensorkeep.scanner.models._templates import faults_of
from tensorkeep.transport import split

_TEMPLATE: Final = ".jinja"
_CONFIGURATIONS: Final = frozenset(("tokenizer_config.json", "processor_config.json", "chat_template.json"))
_KEY: Final = "chat_template"
_MAX_NBYTES: Final = 64 * 2**20


def _is_one(content: Content) -> bool:
    name = split(content.name)[1]
    return name.endswith(_TEMPLATE) or name in _CONFIGURATIONS


def _scan(content: Content, log: FindingLog) -> bool:
    """Report what templates use beyond plain templating, and return whether there are any."""
    if content.nbytes > _MAX_NBYTES:
        log.add("unreadable", "the file is too long for a chat template", content)
        return True
    data = content.read(content.nbytes)
    if content.name.endswith(_TEMPLATE):
        templates = [("", data.decode(errors="replace"))]
    else:
        templates = list(_templates_in(data, content, log))
    for name, template in templates:
        for severity, message in faults_of(template):
            log.add(severity, f"{message} ({name:.100})" if name else message, content)
    return bool(templates)


def _templates_in(data: bytes, content: Content, log: FindingLog) -> Iterator[tuple[str, str]]:
    """Yield the templates of a configuration: one, or several with names."""
    try:
        configuration = json.loads(data)
    except ValueError:
        return
    except RecursionError:
        log.add("unreadable", "the configuration is nested too deeply", content)
        return
    value: Any = configuration.get(_KEY) if isinstance(configuration, dict) else None
    if isinstance(value, str):
        yield "", value
    elif isinstance(value, dict):
        yield from ((name, text) for name, text in value.items() if isinstance(text, str))
    elif isinstance(value, list):
        for item in value:
            if isinstance(item, dict) and isinstance(item.get("template"), str):
                yield str(item.get("name", "")), item["template"]


CHAT_TEMPLATE: Final = ModelForm("chat template", _is_one, _scan)

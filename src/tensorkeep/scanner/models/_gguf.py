"""GGUF files: their chat templates, which programs render."""

from __future__ import annotations

from typing import Final

from tensorkeep.formats.gguf import MAGIC, parse_gguf
from tensorkeep.scanner._content import Content
from tensorkeep.scanner._findings import FindingLog
from tensorkeep.scanner.models._base import ModelForm
from tensorkeep.scanner.models._templates import faults_of

_TEMPLATE_KEY: Final = "tokenizer.chat_template"
"""Also what the keys of further templates begin with, such as `tokenizer.chat_template.tool_use`."""


def _is_gguf(content: Content) -> bool:
    return content.read(min(len(MAGIC), content.nbytes)) == MAGIC


def _scan_gguf(content: Content, log: FindingLog) -> bool:
    source = content.alone()
    contents = parse_gguf(source)
    contents.check_ranges(source)
    for key, value in contents.attributes.items():
        if key.startswith(_TEMPLATE_KEY) and not isinstance(value, tuple):
            text = value.decode(errors="replace") if isinstance(value, bytes) else str(value)
            for severity, message in faults_of(text):
                log.add(severity, f"{message} ({key})" if key != _TEMPLATE_KEY else message, content)
    for name, unknown in contents.unknowns.items():
        log.add("unknown", f"{name} is not known to be data: {unknown}", content)
    return True


GGUF: Final = ModelForm("GGUF file", _is_gguf, _scan_gguf)

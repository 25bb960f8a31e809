"""Paddle's programs, whose operators may read and write files and run Python."""

from __future__ import annotations

from typing import Final

from tensorkeep.formats.paddle import JSON_MAGIC, deeds_of_json, deeds_of_message
from tensorkeep.scanner._content import Content
from tensorkeep.scanner._findings import FindingLog
from tensorkeep.scanner.models._base import ModelForm

_MAX_NBYTES: Final = 256 * 2**20
_MESSAGES: Final = (".pdmodel", "__model__")


def _is_program(content: Content) -> bool:
    name = content.name.lower()
    return name.endswith((*_MESSAGES, ".json")) or content.head().startswith(JSON_MAGIC)


def _scan_program(content: Content, log: FindingLog) -> bool:
    """Report operators that do more than compute, and any that are not known."""
    if content.name.lower().endswith(_MESSAGES):
        deeds = deeds_of_message(content.alone())
    else:
        if content.nbytes > _MAX_NBYTES:
            log.add("unreadable", "the text is too long to tell whether it is a program", content)
            return False
        found = deeds_of_json(content.read(content.nbytes))
        if found is None:
            return False
        deeds = found
    for deed in deeds:
        log.add(deed.severity, deed.message, content)
    return True


PADDLE_PROGRAM: Final = ModelForm("PaddlePaddle program", _is_program, _scan_program)

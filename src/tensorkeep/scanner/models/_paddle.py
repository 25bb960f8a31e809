"""Programs of PaddlePaddle, some of whose operators read and write files and call Python; none is looked into yet."""

from __future__ import annotations

from typing import Final

import msgspec

from tensorkeep.scanner._content import Content
from tensorkeep.scanner._findings import FindingLog
from tensorkeep.scanner.models._base import ModelForm

_MESSAGE: Final = ".pdmodel"
_TEXT: Final = ".json"
_MAX_NBYTES: Final = 256 * 2**20


class _Code(msgspec.Struct):
    magic: str


class _Program(msgspec.Struct):
    base_code: _Code


def _is_one(content: Content) -> bool:
    return content.name.lower().endswith((_MESSAGE, _TEXT))


def _scan(content: Content, log: FindingLog) -> bool:
    """Report that there is a program."""
    if not content.name.lower().endswith(_MESSAGE):
        if content.nbytes > _MAX_NBYTES:
            return False
        try:
            msgspec.json.decode(content.read(content.nbytes), type=_Program)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            return False
        except RecursionError:
            log.add("unreadable", "the text is nested too deeply to tell whether it is a program", content)
            return False
    log.add("unknown", "a program of PaddlePaddle, which may read and write files, and is not looked into", content)
    return True


PADDLE_PROGRAM: Final = ModelForm("PaddlePaddle program", _is_one, _scan)

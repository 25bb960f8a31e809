"""Names in a pickle that the machine refuses, found by reading opcodes in order without executing them.

A malicious pickle may break off after the damage is done. So if the machine refuses a pickle, this scan still lists
the names in it. It cannot see what is computed while the pickle runs, such as a name taken from a container.
"""

from __future__ import annotations

import re
import sys
from typing import Final

import msgspec

from tensorkeep.formats.pickles.machine import Opcode, each_opcode, memo_key
from tensorkeep.formats.pickles.names import danger_of
from tensorkeep.limits import MAX_PICKLE_OPCODES

PICKLE_SUFFIXES: Final = (
    *(".bin", ".ckpt", ".dill", ".joblib", ".mdl", ".pdopt", ".pdparams", ".pickle", ".pkl", ".pt", ".pth", ".th"),
)
"""File name suffixes of pickles, and of archives that contain pickles."""

_CALLS: Final = frozenset(("REDUCE", "INST", "OBJ", "NEWOBJ", "NEWOBJ_EX", "BUILD"))
_TEXTS: Final = frozenset((
    "SHORT_BINUNICODE",
    "BINUNICODE",
    "BINUNICODE8",
    "UNICODE",
    "STRING",
    "BINSTRING",
    "SHORT_BINSTRING",
    "PERSID",  # a reader may take it for the text that it is
))
_PUTS: Final = frozenset(("PUT", "BINPUT", "LONG_BINPUT", "MEMOIZE"))
_GETS: Final = frozenset(("GET", "BINGET", "LONG_BINGET"))
_EXTENSIONS: Final = frozenset(("EXT1", "EXT2", "EXT4"))


class FoundName(msgspec.Struct, frozen=True):
    """One name in a pickle.

    Attributes:
        position: Position of its opcode.
        module: As written in the pickle.
        name: As written in the pickle.
        is_extension: Whether it is a number in the extension registry, which alone knows the name.
        is_computed: Whether the pickle takes it from the stack, so that it may be another one.
    """

    position: int
    module: str
    name: str
    is_extension: bool = False
    is_computed: bool = False


class NameScan(msgspec.Struct, frozen=True):
    """Result of a scan for names.

    Attributes:
        names: All names, in order.
        has_calls: Whether anything would be called or built.
        is_unclear: Whether a reader may find names elsewhere: after a frame that lies inside the bytes, which readers
            may leave at different places, or after more opcodes than are read here.
        stop: The byte after STOP; None if the bytes end or an unknown opcode comes first.
    """

    names: tuple[FoundName, ...]
    has_calls: bool
    is_unclear: bool
    stop: int | None


_is_name = re.compile(r"(?!$)[\w-]{0,255}(?:\.[\w-]{0,255})*").fullmatch


def is_importable(module: str) -> bool:
    """Say whether a reader that looks for a module may import one: this, or the package before the first dot.

    No module's file has a space or a bracket in its name, as lines of text do. A name with a zero byte after a dot is
    the header of a tar archive; its first word counts only if it is known to be a module.
    """
    package, dot, _ = module.partition(".")
    if not dot or not _is_name(package):
        return _is_name(module) is not None
    return "\0" not in module or package in sys.stdlib_module_names or danger_of(package, "") is not None


def scan_names(data: bytes, start: int = 0) -> NameScan:
    """Read the opcodes of a pickle in order, as far as possible, without executing any."""
    names: list[FoundName] = []
    texts = _Texts()
    has_calls = is_unclear = False
    stop = None
    for number, (position, opcode, argument, after) in enumerate(each_opcode(data, start)):
        if number == MAX_PICKLE_OPCODES:
            is_unclear = True
            break
        if opcode.name == "STOP":
            stop = after
            break
        if opcode.name == "FRAME":
            is_unclear = is_unclear or after + int.from_bytes(argument, "little") <= len(data)
        name = texts.follow(position, opcode, argument)
        if name is not None:
            names.append(name)
        has_calls = has_calls or opcode.name in _CALLS
    return NameScan(tuple(names), has_calls, is_unclear, stop)


class _Texts:
    """The last two texts pushed, and a memo of texts that can be pushed again."""

    def __init__(self) -> None:
        self._has_any = False
        self._last = ["", ""]
        self._memo: dict[int, str | None] = {}
        self._is_on_top = False

    def follow(self, position: int, opcode: Opcode, argument: bytes) -> FoundName | None:
        """Take note of an opcode, and return the name that it asks for."""
        kind = opcode.name
        if opcode.argument == "two lines":
            module, _, name = argument.partition(b"\n")
            return FoundName(position, _text(module), _text(name))
        if kind == "STACK_GLOBAL" and self._has_any:
            self._is_on_top = False
            return FoundName(position, self._last[0], self._last[1], is_computed=True)
        if kind in _EXTENSIONS:
            code = int.from_bytes(argument, "little")
            return FoundName(position, "copyreg", f"extension {code}", is_extension=True)
        if kind in _TEXTS:
            self._add(_text(argument))
        elif kind in _PUTS:
            self._put(kind, argument)
        elif kind in _GETS:
            self._get(kind, argument)
        return None

    def _add(self, text: str) -> None:
        self._has_any = True
        self._last = [self._last[1], text]
        self._is_on_top = True

    def _put(self, kind: str, argument: bytes) -> None:
        key = len(self._memo) if kind == "MEMOIZE" else memo_key(kind, argument)
        self._memo[key] = self._last[1] if self._is_on_top else None

    def _get(self, kind: str, argument: bytes) -> None:
        text = self._memo.get(memo_key(kind, argument))
        if text is not None:
            self._add(text)


def _text(data: bytes) -> str:
    return data.decode("utf-8", "backslashreplace")

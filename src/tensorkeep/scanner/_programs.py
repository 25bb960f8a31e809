"""Members of archives that are programs, which some reader of the archive runs without any pickle. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from tensorkeep.scanner._content import Content
from tensorkeep.scanner._findings import FindingLog
from tensorkeep.texts import counted

_SUFFIXES: Final = (
    *(".py", ".pyc", ".pyo", ".pyd", ".pyx", ".sh"),
    *(".so", ".dll", ".dylib", ".exe", ".o", ".cpp", ".cu", ".cubin", ".hsaco", ".ptx"),
)
"""Sources and machine code: torch.package and TorchScript run Python, AOTInductor loads and compiles the rest."""

_MARKS: Final = {
    ".data/extern_modules": "it is a package of torch.package, which imports what its pickles name from itself",
}


def report_programs(names: Iterable[str], content: Content, log: FindingLog) -> None:
    """Report an archive whose members are programs; torch ignores case in their names."""
    folded = {name.partition("\0")[0].casefold(): name for name in names}
    programs = [name for key, name in folded.items() if key.endswith(_SUFFIXES)]
    if programs:
        what = f"{counted(len(programs), 'member')} may be run as programs: {', '.join(programs[:3])}"
        log.add("unknown", f"{what}{', …' if len(programs) > 3 else ''}", content)
    for mark, what in _MARKS.items():
        if mark in folded:
            log.add("unknown", what, content)

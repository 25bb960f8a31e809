"""What an array library would do with the memory of each tensor."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final

from tensorkeep.cli.terminal import Column, Line, columns, printable, size_text
from tensorkeep.texts import counted

if TYPE_CHECKING:
    from tensorkeep.tensors import MemoryUse

_COLUMNS: Final = (Column("name"), Column("size", "right"), Column("memory"), Column("why"))


def memory_lines(path: str, framework: str, uses: Mapping[str, MemoryUse]) -> Iterator[Line]:
    """Write what happens to each tensor, and how many bytes are shared and copied."""
    yield [(printable(path), "title")]
    yield [(f"  loaded into {framework} on the CPU", "dim")]
    yield []
    yield from columns(
        _COLUMNS,
        [
            [[(printable(name), "")], [(size_text(use.nbytes), "")], [(use.outcome, "")], [(use.reason, "dim")]]
            for name, use in uses.items()
        ],
    )
    yield []
    for outcome in ("shared", "copied", "converted", "refused"):
        sizes = [use.nbytes for use in uses.values() if use.outcome == outcome]
        if sizes:
            yield [(f"{outcome}: {counted(len(sizes), 'tensor')}, {size_text(sum(sizes))}", "")]

"""What `convert` wrote and what it left out. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import msgspec

from tensorkeep.cli.terminal import Column, Line, columns, replaced_text, shortened, size_text, speed_text
from tensorkeep.texts import counted

if TYPE_CHECKING:
    from tensorkeep.conversion import Conversion


_MAX_CHARS: Final = 200
_MAX_LINES: Final = 5
_COLUMNS: Final = (Column("what"), Column("which"))


class Converted(msgspec.Struct, frozen=True):
    """A conversion, how many seconds it took, and the files that it replaced."""

    conversion: Conversion
    seconds: float
    replaced: tuple[str, ...] = ()

    def lines(self, _width: int | None) -> Iterator[Line]:
        """Write what was converted and what was left out."""
        done = self.conversion
        files = f"{done.files[0]}, " if len(done.files) == 1 else f"{len(done.files):,} shards, "
        if done.path.endswith(files[:-2]):
            files = ""
        tensors = f"{counted(done.n_tensors, 'tensor')}, {size_text(done.nbytes)}"
        speed = speed_text(done.nbytes, self.seconds)
        written = f": {files}{tensors} in {speed}; nothing was run{replaced_text(self.replaced)}"
        yield [("wrote ", ""), (done.path, "title"), (written, "")]
        rows: list[tuple[Line, Line]] = [([(f"  {label}", "dim")], [(text, "")]) for label, text in _facts(done)]
        yield from columns(_COLUMNS, rows, headings=False)

    def members(self) -> dict[str, object]:
        """Return the same for JSON."""
        members: dict[str, object] = msgspec.to_builtins(self.conversion)
        data_nbytes = members.pop("nbytes")
        return {**members, "data_nbytes": data_nbytes, "seconds": round(self.seconds, 3), "replaced": self.replaced}


def _facts(conversion: Conversion) -> Iterator[tuple[str, str]]:
    ties = [f"{name} is {kept}" for name, kept in conversion.ties.items()]
    yield from facts("stored once", ties)
    overlaps = [" with ".join(group) for group in conversion.overlapped]
    yield from facts("overlapped", overlaps, "; stored separately")
    yield from facts("in parts", [f"{name} ({kind})" for name, kind in conversion.composites.items()])
    left_out = [f"{name}: {what}" if name else what for name, what in conversion.left_out.items()]
    yield from facts("left out", left_out)
    yield from _kept(conversion)
    yield "checked", _checks(conversion)


def _kept(conversion: Conversion) -> Iterator[tuple[str, str]]:
    values = [counted(n, "value")] if (n := conversion.n_values) and conversion.has_tree else []
    entries = [counted(n, "metadata key")] if (n := conversion.n_metadata) else []
    others = " and ".join(values + entries)
    if not conversion.has_tree:
        yield "kept", f"tensors by name, and {others or 'nothing else'}"
    elif others:
        yield "kept", f"{others} beside the tensors"


def facts(label: str, texts: list[str], after: str = "") -> Iterator[tuple[str, str]]:
    """Yield a fact about several items: a line for each of the first few."""
    for place, text in enumerate(texts[:_MAX_LINES]):
        yield "" if place else label, shortened(text, _MAX_CHARS) + after
    if len(texts) > _MAX_LINES:
        yield "", f"and {len(texts) - _MAX_LINES:,} more"


def _checks(conversion: Conversion) -> str:
    if not conversion.is_checked:
        return "nothing, as requested"
    sums = f"{counted(conversion.n_summed, 'checksum')} of the source, and " if conversion.n_summed else ""
    return f"{sums}every tensor, read back"

"""What `export` wrote and what it left out. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import msgspec

from tensorkeep.cli.reports._conversion import facts
from tensorkeep.cli.terminal import Column, Line, columns, replaced_text, size_text, speed_text
from tensorkeep.texts import counted, listed

if TYPE_CHECKING:
    from tensorkeep.exporting import Export


_COLUMNS: Final = (Column("what"), Column("which"))


class Exported(msgspec.Struct, frozen=True):
    """An export, how many seconds it took, and the files that it replaced."""

    export: Export
    seconds: float
    replaced: tuple[str, ...] = ()

    def lines(self, _width: int | None) -> Iterator[Line]:
        """Write what was exported and what was left out."""
        done = self.export
        files = "" if len(done.files) == 1 else f"{listed(done.files)}, "
        tensors = f"{counted(done.n_tensors, 'tensor')}, {size_text(done.nbytes)}"
        speed = speed_text(done.nbytes, self.seconds)
        written = f": {files}{tensors} in {speed}; nothing was run{replaced_text(self.replaced)}"
        yield [("wrote ", ""), (done.path, "title"), (written, "")]
        rows: list[tuple[Line, Line]] = [([(f"  {label}", "dim")], [(text, "")]) for label, text in _facts(done)]
        yield from columns(_COLUMNS, rows, headings=False)

    def members(self) -> dict[str, object]:
        """Return the same for JSON."""
        members: dict[str, object] = msgspec.to_builtins(self.export)
        data_nbytes = members.pop("nbytes")
        return {**members, "data_nbytes": data_nbytes, "seconds": round(self.seconds, 3), "replaced": self.replaced}


def _facts(export: Export) -> Iterator[tuple[str, str]]:
    yield from facts("copied", [f"{name} is {first}" for name, first in export.copied.items()])
    left_out = [f"{counted(n, 'value')} beside the tensors"] if (n := export.n_values_left_out) else []
    keys = export.metadata_left_out
    left_out += [f"metadata: {listed(f'`{key}`' for key in keys)}"] if keys else []
    left_out += [f"{name}: {what}" if name else what for name, what in export.left_out.items()]
    yield from facts("left out", left_out)
    yield "checked", "every tensor, read back" if export.is_checked else "nothing, as requested"

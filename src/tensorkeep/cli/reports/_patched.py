"""The patch that a command wrote. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from tensorkeep.cli.terminal import Line, replaced_text, size_text
from tensorkeep.texts import counted, listed

if TYPE_CHECKING:
    from tensorkeep.patches import Summary


class Patched(msgspec.Struct, frozen=True):
    """A patch, how many seconds it took, and the files that it replaced."""

    summary: Summary
    seconds: float
    replaced: tuple[str, ...] = ()

    def lines(self, _width: int | None) -> list[Line]:
        """Write what the patch changes."""
        made = self.summary
        counts = {"changed": made.n_changed, "added or replaced": made.n_added, "removed": made.n_removed}
        changes = listed(f"{counted(n, 'tensor')} {what}" for what, n in counts.items() if n) or "nothing changes"
        undo = "" if made.is_reversible else "; cannot be undone (--reversible)"
        text = f": {changes}, {size_text(made.nbytes)} in {self.seconds:.2f} s{undo}{replaced_text(self.replaced)}"
        return [[("wrote ", ""), (made.path, "title"), (text, "")]]

    def members(self) -> dict[str, object]:
        """Return the same for JSON."""
        members: dict[str, object] = msgspec.to_builtins(self.summary)
        return {**members, "seconds": round(self.seconds, 3), "replaced": self.replaced}

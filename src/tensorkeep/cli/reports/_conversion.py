"""What `convert` wrote and what it left out, as lines for people and as an object for programs. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import msgspec

from tensorkeep.cli.terminal import Column, Line, columns, shortened, size_text, tensors_text
from tensorkeep.phrases import counted, listed

if TYPE_CHECKING:
    from tensorkeep.conversion import Conversion


_MAX_CHARS: Final = 200
_COLUMNS: Final = (Column("what"), Column("which"))


def conversion_lines(conversion: Conversion, seconds: float) -> Iterator[Line]:
    """Write what became of a checkpoint."""
    files = f"{conversion.files[0]}, " if len(conversion.files) == 1 else f"{len(conversion.files):,} shards, "
    if conversion.path.endswith(files[:-2]):
        files = ""
    speed = size_text(int(conversion.nbytes / max(seconds, 1e-9)))
    tensors = f"{tensors_text(conversion.n_tensors)}, {size_text(conversion.nbytes)}"
    yield [
        ("wrote ", ""),
        (conversion.path, "title"),
        (f": {files}{tensors} in {seconds:.2f} s ({speed}/s); nothing was run", ""),
    ]
    rows: list[tuple[Line, Line]] = [([(f"  {label}", "dim")], [(text, "")]) for label, text in _facts(conversion)]
    yield from columns(_COLUMNS, rows, headings=False)


def _facts(conversion: Conversion) -> Iterator[tuple[str, str]]:
    ties = [f"{name} is {kept}" for name, kept in conversion.ties.items()]
    yield from _fact("stored once", ties)
    overlaps = [" with ".join(group) for group in conversion.overlapped]
    yield from _fact("overlapped", overlaps, "; stored each on its own")
    yield from _fact("in parts", [f"{name} ({kind})" for name, kind in conversion.composites.items()])
    left_out = [f"{name} ({what})" if name else what for name, what in conversion.left_out.items()]
    yield from _fact("left out", left_out)
    yield from _kept(conversion)
    yield "checked", _checks(conversion)


def _kept(conversion: Conversion) -> Iterator[tuple[str, str]]:
    if not conversion.has_tree:
        yield "kept", "tensors by name, and nothing beside them"
    elif n := conversion.n_values:
        yield "kept", f"{counted(n, 'value')} beside the tensors"


def _fact(label: str, texts: list[str], after: str = "") -> Iterator[tuple[str, str]]:
    """Give a fact about several things, of which the first are shown; nothing if there are none."""
    if texts:
        yield label, listed(shortened(text, _MAX_CHARS) for text in texts) + after


def _checks(conversion: Conversion) -> str:
    if not conversion.is_checked:
        return "nothing, as asked for"
    sums = f"{conversion.n_summed:,} CRC-32 of the source, and " if conversion.n_summed else ""
    return f"{sums}every tensor, read back"


def conversion_members(conversion: Conversion, seconds: float) -> dict[str, object]:
    """Return what became of a checkpoint, for JSON."""
    members: dict[str, object] = msgspec.to_builtins(conversion)
    data_nbytes = members.pop("nbytes")
    return {**members, "data_nbytes": data_nbytes, "seconds": round(seconds, 3)}

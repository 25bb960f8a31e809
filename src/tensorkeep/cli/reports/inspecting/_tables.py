"""What `inspect` prints: a summary, tensors as a tree or a table, totals. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING

import msgspec

from tensorkeep.cli.reports.inspecting._module_tree import Branch
from tensorkeep.cli.reports.inspecting._report import Report, Totals
from tensorkeep.cli.reports.inspecting._state import StateReport
from tensorkeep.cli.terminal import (
    Column,
    Line,
    Span,
    Style,
    columns,
    printable,
    shape_text,
    share_text,
    shortened,
    size_text,
)
from tensorkeep.entries import TensorEntry
from tensorkeep.texts import counted

if TYPE_CHECKING:
    from tensorkeep.formats import Digests
    from tensorkeep.quantized import Layouts


_LIGHT = 100
"""Sizes below this fraction of the file (1/100) are dim, so that large ones stand out."""

_MAX_METADATA_KEYS = 20
_MAX_METADATA_CHARS = 64
_MIN_METADATA_CHARS = 8
_INDENT = 13
"""Characters before metadata."""

_LENGTH_CHARS = len("... (1,000,000 characters)")
_MAX_OTHERS = 5
_MAX_OTHER_CHARS = 200


class Guides(msgspec.Struct, frozen=True):
    """The lines of the tree, all of equal width.

    Attributes:
        between: Before a branch that others follow.
        last: Before the last branch.
        passing: Before the contents of a branch that others follow.
        blank: Before the contents of the last branch.
    """

    between: str
    last: str
    passing: str
    blank: str = "   "


GUIDES = Guides("├─ ", "└─ ", "│  ")
ASCII_GUIDES = Guides("|- ", "`- ", "|  ")
"""For terminals without UTF-8."""


def summary(report: Report, width: int | None = None) -> Iterator[Line]:
    """Summarize the files."""
    yield [(printable(report.path), "title")]
    rows: list[list[Line]] = [[[("  " + label, "dim")], [value]] for label, value in _facts(report)]
    rows += [
        [[("  metadata" if not place else "", "dim")], line] for place, line in enumerate(_metadata(report, width))
    ]
    yield from columns((Column(""), Column("")), rows, headings=False)


def _facts(report: Report) -> Iterator[tuple[str, Span]]:
    files = f"{report.file_nbytes:,} bytes ({size_text(report.file_nbytes)})"
    if report.index is None:
        yield "file", (files, "")
    else:
        yield "index", (printable(report.index), "")
        yield "shards", (f"{len(report.files):,} files, {files}", "")
    if not report.is_safetensors:
        yield "form", (f"{report.form}; nothing in it was run", "")
    yield "tensors", (f"{report.whole.n_tensors:,} ({report.whole.n_elements:,} parameters)", "")
    if report.state is not None and report.state.has_content:
        yield "state", _state(report.state)
    for name, reason in report.dangers.items():
        yield "DANGER", (f"{printable(name)} {reason}: do not load this file with another program", "error")
    if report.quantized is not None:
        yield from _quantized(report.quantized)
    yield from _others("strings", report.strings, "")
    yield from _others("unknown", report.unknowns, "warning")
    if report.is_safetensors:
        yield from _layout_facts(report)


def _quantized(found: Layouts) -> Iterator[tuple[str, Span]]:
    """List how many tensors are quantized in which way."""
    schemes = found.n_by_scheme.items()
    for place, (scheme, n_tensors) in enumerate(islice(schemes, _MAX_OTHERS)):
        yield "" if place else "quantized", (f"{counted(n_tensors, 'tensor')}: {printable(scheme)}", "")
    if len(schemes) > _MAX_OTHERS:
        yield "", (f"and {len(schemes) - _MAX_OTHERS:,} more (all with --json)", "")
    if found.findings:
        there_is = "there is" if len(found.findings) == 1 else "there are"
        label = "" if schemes else "quantized"
        yield label, (f"{there_is} {counted(len(found.findings), 'finding')}: see `tensorkeep check`", "warning")


def _others(label: str, others: Mapping[str, str], style: Style) -> Iterator[tuple[str, Span]]:
    """List the first objects that are no tensors."""
    for place, (name, what) in enumerate(islice(others.items(), _MAX_OTHERS)):
        text = printable(shortened(f"{name}: {what}" if name else what, _MAX_OTHER_CHARS))
        yield "" if place else label, (text, style)
    if len(others) > _MAX_OTHERS:
        yield "", (f"and {len(others) - _MAX_OTHERS:,} more (all with --json)", style)


def _state(state: StateReport) -> Span:
    if state.problem is not None:
        return printable(state.problem), "error"
    n_views = len(state.views) - state.n_tied
    values = {0: "tensors only", 1: "1 value that is not a tensor"}
    facts = [
        values.get(state.n_values, f"{state.n_values:,} values that are not tensors"),
        f"{counted(state.n_tied, 'tensor')} tied to others" if state.n_tied else "",
        ("1 view of another" if n_views == 1 else f"{n_views:,} views of others") if n_views else "",
    ]
    return ", ".join(filter(None, facts)), ""


def _layout_facts(report: Report) -> Iterator[tuple[str, Span]]:
    yield "header" if report.index is None else "headers", (f"{report.header_nbytes:,} bytes", "")
    yield "data", (_start_of_data(report), "")
    yield "alignment", _alignment(report)
    if report.splits:
        yield "splits", (_splits(report), "")
    if report.digests != "none":
        yield "digests", _DIGESTS[report.digests]


_DIGESTS: dict[Digests, Span] = {
    "all": ("BLAKE3 of every tensor", ""),
    "some": ("BLAKE3 of the tensors in some shards only", "warning"),
    "stale": ("do not match this header: it is damaged, or another program changed it", "warning"),
}


def _splits(report: Report) -> str:
    n_pieces = sum(map(len, report.splits.values()))
    which = "1 tensor is" if len(report.splits) == 1 else f"{len(report.splits):,} tensors are"
    return f"{which} cut into {n_pieces:,} pieces"


def _start_of_data(report: Report) -> str:
    alignment = _alignment_of_data(report)
    if report.data_start is None:
        return f"{alignment} in each file" if report.data_alignment > 1 else f"{alignment} in every file"
    return f"from byte {report.data_start:,} ({alignment})"


def _alignment_of_data(report: Report) -> str:
    return f"aligned to {report.data_alignment} bytes" if report.data_alignment > 1 else "not aligned"


def _alignment(report: Report) -> Span:
    if not report.n_misaligned:
        return "every tensor starts at a multiple of its element size", ""
    which = "1 tensor does" if report.n_misaligned == 1 else f"{report.n_misaligned:,} tensors do"
    return f"{which} not start at a multiple of the element size", "warning"


def _metadata(report: Report, width: int | None) -> Iterator[Line]:
    if not report.metadata:
        yield [("none" if report.metadata is None else "empty", "dim")]
        return
    for key, value in list(report.metadata.items())[:_MAX_METADATA_KEYS]:
        label = printable(shortened(key, _MAX_METADATA_CHARS))
        yield [(label, ""), (" = ", "dim"), (_fitted(value, width and width - _INDENT - len(label) - 3), "")]
    n_hidden = len(report.metadata) - _MAX_METADATA_KEYS
    if n_hidden > 0:
        yield [(f"and {n_hidden:,} more keys (all with --json)", "dim")]


def _fitted(value: str, n_free: int | None) -> str:
    """Shorten a value to what a line of the terminal has room for."""
    if n_free is None:
        return printable(shortened(value, _MAX_METADATA_CHARS))
    if len(value) <= n_free:
        return printable(value)
    return printable(shortened(value, max(n_free - _LENGTH_CHARS, _MIN_METADATA_CHARS)))


_TREE_COLUMNS = (
    Column("module"),
    Column("tensors", "right"),
    Column("dtype"),
    Column("shape"),
    Column("size", "right"),
    Column("share", "right"),
)


def tree(
    branches: Sequence[Branch], whole_nbytes: int, guides: Guides = GUIDES, width: int | None = None
) -> Iterator[Line]:
    """Draw modules and tensors."""
    rows = list(_tree_rows(branches, whole_nbytes, guides))
    yield from columns(*_without_empty_column((*_TREE_COLUMNS, _MEMORY), rows), width=width)


_MEMORY = Column("memory")


def _without_empty_column(
    layout: tuple[Column, ...], rows: list[list[Line]]
) -> tuple[tuple[Column, ...], list[list[Line]]]:
    """Leave out the last column if it is empty."""
    if any(text for row in rows for text, _ in row[-1]):
        return layout, rows
    return layout[:-1], [row[:-1] for row in rows]


def _tree_rows(
    branches: Sequence[Branch], whole_nbytes: int, guides: Guides, indent: str | None = None, n_outer: int = 1
) -> Iterator[list[Line]]:
    """Yield the rows of branches and their contents; the outermost, without an indent, have no guides."""
    for branch in branches:
        guide = inner = ""
        if indent is not None:
            is_last = branch is branches[-1]
            guide = indent + (guides.last if is_last else guides.between)
            inner = indent + (guides.blank if is_last else guides.passing)
        n_copies = n_outer * branch.n_copies
        yield _tree_row(branch, whole_nbytes, guide, n_copies)
        yield from _tree_rows(branch.children, whole_nbytes, guides, inner, n_copies)


def _tree_row(branch: Branch, whole_nbytes: int, guide: str, n_copies: int) -> list[Line]:
    name: Line = [(guide, "dim"), (printable(branch.label) or '""', "module" if branch.entry is None else "")]
    if branch.n_copies > 1:
        name.append((f" ({branch.n_copies:,}x)", "dim"))
    n_tensors = n_copies * branch.n_tensors
    nbytes = n_copies * branch.nbytes
    weight: Style = "" if nbytes * _LIGHT >= whole_nbytes else "dim"
    dtype, shape = ("", "") if branch.entry is None else (branch.entry.dtype, shape_text(branch.entry.shape))
    return [
        name,
        [(f"{n_tensors:,}" if n_tensors > 1 else "", "dim")],
        [(printable(dtype), "dtype")],
        [(shape, "")],
        [(size_text(nbytes), weight)],
        [(share_text(nbytes, whole_nbytes), weight)],
        [(printable(branch.note), "dim")],
    ]


_TABLE_COLUMNS = (
    Column("name"),
    Column("dtype"),
    Column("shape"),
    Column("bytes", "right"),
    Column("share", "right"),
    Column("start", "right"),
    Column("stop", "right"),
)


def table(report: Report, width: int | None = None) -> Iterator[Line]:
    """List tensors, one per row."""
    layout = _TABLE_COLUMNS if report.index is None else (*_TABLE_COLUMNS, Column("shard"))
    rows = [_table_row(name, entry, report.whole.nbytes) for name, entry in report.shown.items()]
    if report.index is not None:
        for row, name in zip(rows, report.shown, strict=True):
            row.append([(printable(report.file_of(name)), "")])
    for row, name in zip(rows, report.shown, strict=True):
        row.append([(printable(report.note_of(name)), "dim")])
    yield from columns(*_without_empty_column((*layout, _MEMORY), rows), width=width)


def _table_row(name: str, entry: TensorEntry, whole_nbytes: int) -> list[Line]:
    return [
        [(printable(name) or '""', "")],
        [(printable(entry.dtype), "dtype")],
        [(shape_text(entry.shape), "")],
        [(str(entry.nbytes), "")],
        [(share_text(entry.nbytes, whole_nbytes), "dim")],
        [(str(entry.data_offsets[0]), "dim")],
        [(str(entry.data_offsets[1]), "dim")],
    ]


_TOTALS_COLUMNS = (
    Column("dtype"),
    Column("tensors", "right"),
    Column("parameters", "right"),
    Column("size", "right"),
    Column("share", "right"),
)


def totals(report: Report) -> Iterator[Line]:
    """Total the shown tensors, by dtype and overall, and count the others."""
    by_dtype = report.totals_by_dtype()
    shown = report.totals
    rows = [_totals_row(printable(dtype), sums, report.whole.nbytes) for dtype, sums in by_dtype.items()]
    if len(by_dtype) != 1:
        rows.append(_totals_row("total", shown, report.whole.nbytes))
    yield from columns(_TOTALS_COLUMNS, rows)
    if shown.n_tensors != report.whole.n_tensors:
        yield []
        yield [(f"shown {shown.n_tensors:,} of {report.whole.n_tensors:,} tensors", "warning")]


def _totals_row(label: str, sums: Totals, whole_nbytes: int) -> list[Line]:
    return [
        [(label, "" if label == "total" else "dtype")],
        [(f"{sums.n_tensors:,}", "")],
        [(f"{sums.n_elements:,}", "")],
        [(size_text(sums.nbytes), "")],
        [(share_text(sums.nbytes, whole_nbytes), "dim")],
    ]


def nothing(report: Report, pattern: str | None) -> Line:
    """Explain why no tensor is shown."""
    if pattern is None or not report.whole.n_tensors:
        return [("The file has no tensors." if report.index is None else "The checkpoint has no tensors.", "")]
    return [
        (
            f"No tensor of {report.whole.n_tensors:,} has a full name that matches '{printable(pattern)}'.",
            "warning",
        )
    ]


def part(name: str, dtype: str, shape: tuple[int, ...], whole_shape: tuple[int, ...]) -> Line:
    """Write which part of a tensor follows."""
    line: Line = [(printable(name), "title"), ("  ", ""), (printable(dtype), "dtype"), (f"  {shape_text(shape)}", "")]
    return line if shape == whole_shape else [*line, (f" of {shape_text(whole_shape)}", "dim")]

"""What `scan` found. Pure.

Everything from a file is escaped: a name or an argument may be crafted to look like something else on a terminal.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from tensorkeep.cli.terminal import Column, Line, Style, columns, printable, shortened
from tensorkeep.texts import counted

if TYPE_CHECKING:
    from tensorkeep.scanner import ScanFinding, ScannedFile, ScanReport


_MAX_FINDINGS: Final = 20
"""Names that are shown per file; dangerous ones are always shown."""

_MAX_ARGUMENTS: Final = 3
_MAX_CHARS: Final = 200

_STYLES: Final[dict[str, Style]] = {
    "dangerous": "error",
    "refused": "error",
    "unreadable": "warning",
    "suspicious": "warning",
    "unknown": "",
    "clean": "dim",
}
_COLUMNS: Final = (Column("name"), Column("would be"), Column("times", "right"), Column("where"), Column("why"))
_DEEDS: Final = {"import": "imported", "call": "called", "build": "built", "extension": "looked up"}
_NOTHING_WAS_RUN: Final = "nothing was run"


def scan_lines(report: ScanReport) -> Iterator[Line]:
    """Write what was found in each file, and then the verdict."""
    width = max((len(file.verdict) for file in report.files), default=0)
    for file in report.files:
        yield from _file_lines(file, width)
    if report.files:
        yield []
    yield _sum_line(report)


def _file_lines(file: ScannedFile, width: int) -> Iterator[Line]:
    pickles = f", {counted(file.n_pickles, 'pickle')}" if file.n_pickles else ""
    yield [
        (f"{file.verdict:<{width}}  ", _STYLES[file.verdict]),
        (printable(file.path), "title"),
        (f"  {printable(file.form)}{pickles}", "dim"),
    ]
    named = [finding for finding in file.findings if finding.name is not None]
    n_dangerous = sum(finding.severity == "dangerous" for finding in named)
    shown = named[: max(n_dangerous, _MAX_FINDINGS)]
    lines = columns(_COLUMNS, [_row(finding) for finding in shown], headings=False)
    for finding, line in zip(shown, lines, strict=True):
        yield [("  ", ""), *line]
        yield from _argument_lines(finding)
    if len(named) > len(shown):
        yield [(f"  and {len(named) - len(shown):,} more names (all with --json)", "dim")]
    for finding in [finding for finding in file.findings if finding.name is None][:_MAX_FINDINGS]:
        place = _place(finding)
        message = shortened(printable(finding.message), _MAX_CHARS)
        yield [(f"  {message}", _STYLES[finding.severity]), (f"  {place}" if place else "", "dim")]


def _row(finding: ScanFinding) -> Sequence[Line]:
    deeds = ", ".join(_DEEDS[deed] for deed in finding.deeds)
    how = " (found by a raw search)" if finding.is_swept else ""
    return [
        [(shortened(printable(finding.name or ""), _MAX_CHARS), _STYLES[finding.severity])],
        [(f"{deeds}{how}", "")],
        [(f"{finding.count:,}x" if finding.count > 1 else "", "dim")],
        [(_place(finding), "dim")],
        [(printable(finding.message), _STYLES[finding.severity])],
    ]


def _argument_lines(finding: ScanFinding) -> Iterator[Line]:
    """Show the arguments of calls to dangerous or suspicious names."""
    if finding.severity in {"dangerous", "suspicious"}:
        for text in finding.arguments[:_MAX_ARGUMENTS]:
            yield [("    with ", "dim"), (shortened(printable(text), _MAX_CHARS), "")]
        if len(finding.arguments) > _MAX_ARGUMENTS:
            yield [(f"    and {len(finding.arguments) - _MAX_ARGUMENTS:,} more calls (all with --json)", "dim")]


def _place(finding: ScanFinding) -> str:
    byte = "" if finding.position is None else f"byte {finding.position:,}"
    return ", ".join(part for part in (shortened(printable(finding.member or ""), _MAX_CHARS), byte) if part)


def _sum_line(report: ScanReport) -> Line:
    verdicts: Counter[str] = Counter(file.verdict for file in report.files)
    parts = [f"{verdicts[verdict]:,} {verdict}" for verdict in _STYLES if verdicts[verdict]]
    files = counted(len(report.files), "file") + (f" ({', '.join(parts)})" if len(report.files) > 1 else "")
    skipped = f", {counted(report.n_skipped, 'other file')}" if report.n_skipped else ""
    verdict = report.verdict if report.files else "nothing to scan"
    return [(verdict, _STYLES.get(verdict, "")), (f": {files}{skipped}; {_NOTHING_WAS_RUN}", "")]

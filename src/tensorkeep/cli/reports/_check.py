"""What `check` found. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

import msgspec

from tensorkeep.cli.terminal import Line, Style
from tensorkeep.texts import counted, printable, shortened

if TYPE_CHECKING:
    from tensorkeep.checking import CheckFinding, CheckReport

_STYLES: Final[dict[str, Style]] = {"error": "error", "warning": "warning", "note": "dim"}
_OF_FIT: Final = frozenset(("missing", "extra"))
_MAX_CHARS: Final = 300


class Checked(msgspec.Struct, frozen=True):
    """A check, with the share that the caller accepts.

    Attributes:
        report: What was found.
        least: Share of the elements from which missing and extra tensors are accepted; None if they never are.
    """

    report: CheckReport
    least: float | None

    @property
    def is_accepted(self) -> bool:
        """Whether nothing is wrong."""
        fit = self.report.fit
        if self.least is None or fit is None:
            return self.report.is_sound
        others = [finding for finding in self.report.findings if finding.code not in _OF_FIT]
        return fit.share >= self.least and all(finding.severity == "note" for finding in others)

    def lines(self, _width: int | None) -> Iterator[Line]:
        """Write the findings, and then the answer."""
        report = self.report
        for finding in report.findings:
            yield from _finding_lines(finding)
            yield []
        extent = f"{counted(report.n_tensors, 'tensor')} in {counted(report.n_files, 'file')}"
        what = "headers and elements" if report.has_data else "headers"
        against = f", compared with {printable(report.against)}" if report.against else ""
        yield [_answer(self), (f": {extent}, {what}{against}", "")]
        if report.fit is not None:
            yield [(f"{report.fit}", "")]
        if report.building_s:
            yield [(f"building the model took {report.building_s:.1f} s", "dim")]

    def members(self) -> dict[str, Any]:
        """Return the same for JSON."""
        members = self.report.members()
        return members | {"is_accepted": self.is_accepted, "findings": iter(members["findings"])}


def _answer(checked: Checked) -> tuple[str, Style]:
    findings = checked.report.findings
    n_errors = sum(finding.severity == "error" for finding in findings)
    n_warnings = sum(finding.severity == "warning" for finding in findings)
    facts = [counted(n, noun) for n, noun in ((n_errors, "error"), (n_warnings, "warning")) if n]
    if checked.is_accepted:
        return "makes sense", "title"
    return ", ".join(facts) or "too little fits", "error" if n_errors or not facts else "warning"


def _finding_lines(finding: CheckFinding) -> Iterator[Line]:
    yield [
        (finding.severity, _STYLES[finding.severity]),
        (f"  {finding.code}  ", "dim"),
        (_shown(finding.message), "title"),
    ]
    for label, fact in (("expected", finding.expected), ("found", finding.found)):
        if fact:
            yield [(f"  {label} ", "dim"), (_shown(fact), "")]
    for name in finding.tensors:
        yield [("    ", ""), (_shown(name), "")]
    if finding.n_tensors > len(finding.tensors):
        yield [(f"    and {finding.n_tensors - len(finding.tensors):,} more", "dim")]
    if finding.advice:
        yield [(f"  {finding.advice}", "dim")]


def _shown(text: str) -> str:
    return shortened(printable(text), _MAX_CHARS)

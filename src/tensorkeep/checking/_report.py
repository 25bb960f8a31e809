"""The result of a check: plain values, and JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import msgspec

from tensorkeep.checking._comparison import Fit
from tensorkeep.checking._findings import SEVERITIES, CheckFinding
from tensorkeep.markup import page, table
from tensorkeep.sarif import SarifResult, SarifRule, sarif_text
from tensorkeep.texts import counted


class CheckReport(msgspec.Struct, frozen=True, kw_only=True):
    """What `check` found. True only if it `is_sound`.

    Attributes:
        path: The checkpoint.
        findings: What makes no sense, worst first.
        n_tensors: Number of tensors.
        n_files: Number of files that hold them.
        against: What it was compared with, for people; None if with nothing but itself and its config.
        fit: How much of the checkpoint is used and of the model is filled; None if it was compared with nothing.
        building_s: Seconds that it took to build a model, which all the rest does not need.
        has_data: Whether the elements were read too.
    """

    path: str
    findings: tuple[CheckFinding, ...] = ()
    n_tensors: int = 0
    n_files: int = 0
    against: str | None = None
    fit: Fit | None = None
    building_s: float = 0.0
    has_data: bool = False

    @property
    def is_sound(self) -> bool:
        """Whether there are no errors and no warnings; notes are not counted."""
        return all(finding.severity == "note" for finding in self.findings)

    def __bool__(self) -> bool:
        return self.is_sound

    def members(self) -> dict[str, Any]:
        """Return everything as values for JSON."""
        fit = self.fit
        return {
            "path": self.path,
            "is_sound": self.is_sound,
            "n_tensors": self.n_tensors,
            "n_files": self.n_files,
            "against": self.against,
            "share_used": None if fit is None else _share(fit.n_used, fit.n_stored),
            "share_filled": None if fit is None else _share(fit.n_filled, fit.n_expected),
            "building_s": round(self.building_s, 3),
            "has_data": self.has_data,
            "findings": [msgspec.to_builtins(finding) for finding in self.findings],
        }

    def to_json(self) -> str:
        """Return everything as JSON, in ASCII, so that it cannot control a terminal."""
        return json.dumps(self.members(), indent=2).replace("\x7f", r"\u007f")

    def to_sarif(self) -> str:
        """Return the findings as SARIF 2.1.0, for code scanning services, in ASCII."""
        worst = {each.code: each.severity for each in reversed(self.findings)}
        rules = [SarifRule(code, severity, code.replace("-", " ")) for code, severity in sorted(worst.items())]
        results = [
            SarifResult(
                rule=each.code,
                message=str(each).removeprefix(f"{each.severity}: "),
                path=self.path,
                level=each.severity,
                parts=each.tensors,
                part_kind="tensor",
                properties={"n_tensors": each.n_tensors, "advice": each.advice},
            )
            for each in self.findings
        ]
        return sarif_text("check", rules, results, about=[self.path])

    def _repr_html_(self) -> str:
        answer = "makes sense" if self.is_sound else f"{counted(len(self.findings), 'finding')}"
        facts = [counted(self.n_tensors, "tensor"), counted(self.n_files, "file"), self.against or ""]
        headings = ("severity", "what is wrong", "expected", "found", "tensors", "number")
        found = [table(headings, map(_row, self.findings), len(self.findings), numbers=(5,))] if self.findings else []
        return page(f"{self.path}: {answer}", [fact for fact in facts if fact], *found)


def in_order(findings: Iterable[CheckFinding]) -> tuple[CheckFinding, ...]:
    """Return findings with the worst first."""
    return tuple(sorted(findings, key=lambda finding: SEVERITIES.index(finding.severity)))


def _row(finding: CheckFinding) -> tuple[str, ...]:
    return (
        finding.severity,
        finding.message,
        finding.expected or "",
        finding.found or "",
        ", ".join(finding.tensors),
        f"{finding.n_tensors:,}",
    )


def _share(part: int, whole: int) -> float:
    return round(part / whole, 6) if whole else 1.0

"""The result of a scan: plain values, JSON and SARIF."""

from __future__ import annotations

import json
from typing import Final, Literal

import msgspec

from tensorkeep.markup import folded, page, table
from tensorkeep.sarif import SarifResult, SarifRule, sarif_text
from tensorkeep.texts import counted

Verdict = Literal["clean", "unknown", "dangerous", "refused", "unreadable"]
"""`"clean"`: plain data and tensors; `"unknown"`: names that would be imported, none known to be dangerous;
`"dangerous"`: names that could only do harm; `"refused"`: the policy does not allow it; `"unreadable"`: breaks its
format or a limit, so it is unclear."""

Severity = Literal["dangerous", "refused", "unreadable", "suspicious", "unknown"]

SEVERITIES: Final[tuple[Severity, ...]] = ("dangerous", "refused", "unreadable", "suspicious", "unknown")
"""From worst to best."""

_VERDICTS: Final[dict[Severity, Verdict]] = {
    "dangerous": "dangerous",
    "refused": "refused",
    "unreadable": "unreadable",
    "suspicious": "unknown",
    "unknown": "unknown",
}
_RULES: Final = (
    SarifRule("dangerous", "error", "A pickle contains a name that could only do harm"),
    SarifRule("refused", "error", "The policy does not allow this format, or pickles"),
    SarifRule("unreadable", "error", "A file cannot be read, so what it would run is unknown"),
    SarifRule("suspicious", "warning", "A pickle contains a name that may do harm"),
    SarifRule("unknown", "note", "A pickle contains a name that is not known to be data"),
)
_HEADINGS: Final = ("severity", "name", "what it is or does", "times", "member")
_MAX_FILES_SHOWN: Final = 20

_VERDICT_ORDER: Final[tuple[Verdict, ...]] = ("dangerous", "refused", "unreadable", "unknown")


class ScanFinding(msgspec.Struct, frozen=True, kw_only=True):
    """One thing in a file that is not plain data.

    Attributes:
        severity: `"dangerous"`: could only do harm; `"refused"`: not allowed by the policy; `"unreadable"`: broken,
            or over a limit; `"suspicious"`: may do harm, but occurs in honest files too; `"unknown"`: nothing is
            known about it.
        message: A few words on what it is or does.
        member: The member of an archive, with slashes between nested archives; None for the file itself.
        position: Byte of the member's contents, or of the file; None if the finding is about all of it.
        offset: The same byte, counted from the start of the file; None if the member is compressed.
        name: What would be imported, such as `"os.system"`; None if the finding is not about a name.
        deeds: What a pickle would do with it: `"import"`, `"call"`, `"build"` (set state), `"extension"` (look up by
            number).
        count: How often it occurs.
        arguments: Abbreviated arguments, one text for each call that differs.
        is_swept: Whether it was found by reading opcodes only, in a pickle that cannot be followed to its end.
    """

    severity: Severity
    message: str
    member: str | None = None
    position: int | None = None
    offset: int | None = None
    name: str | None = None
    deeds: tuple[str, ...] = ()
    count: int = 1
    arguments: tuple[str, ...] = ()
    is_swept: bool = False


class ScannedFile(msgspec.Struct, frozen=True):
    """The result for one file.

    Attributes:
        path: The file.
        form: Its format, such as `"PyTorch zip archive"`.
        n_pickles: Pickles in it that were scanned.
        findings: Everything that is not plain data, worst first.
        known_names: Names in it that are known to be plain data and tensors.
    """

    path: str
    form: str
    n_pickles: int
    findings: tuple[ScanFinding, ...] = ()
    known_names: tuple[str, ...] = ()

    @property
    def verdict(self) -> Verdict:
        """The verdict on the worst finding."""
        severities = {finding.severity for finding in self.findings}
        return next((_VERDICTS[severity] for severity in SEVERITIES if severity in severities), "clean")


class ScanReport(msgspec.Struct, frozen=True):
    """The result of a scan. Nothing that it lists was run.

    Attributes:
        paths: What was scanned.
        files: Files that can contain code, and files of tensors.
        n_skipped: Other files of a directory.
    """

    paths: tuple[str, ...]
    files: tuple[ScannedFile, ...]
    n_skipped: int = 0

    @property
    def findings(self) -> tuple[ScanFinding, ...]:
        """The findings of all files."""
        return tuple(finding for file in self.files for finding in file.findings)

    @property
    def verdict(self) -> Verdict:
        """The worst verdict of all files; `"dangerous"` is worse than `"unreadable"`."""
        verdicts = {file.verdict for file in self.files}
        return next((verdict for verdict in _VERDICT_ORDER if verdict in verdicts), "clean")

    @property
    def is_clean(self) -> bool:
        """Whether there is only plain data and tensors."""
        return self.verdict == "clean"

    def _repr_html_(self) -> str:
        facts = [counted(len(self.files), "file"), counted(len(self.findings), "finding")]
        if len(self.files) > _MAX_FILES_SHOWN:
            facts.append(f"the {_MAX_FILES_SHOWN} with most findings")
        parts = [
            folded(
                f"{file.path}: {file.verdict} ({file.form})",
                table(_HEADINGS, map(_row, file.findings), len(file.findings), numbers=(3,)),
                is_open=file.verdict == "dangerous",
            )
            for file in sorted(self.files, key=lambda file: -len(file.findings))[:_MAX_FILES_SHOWN]
        ]
        return page(f"{', '.join(self.paths)}: {self.verdict}", facts, *parts)

    def to_json(self) -> str:
        """Return everything as JSON, in ASCII, so that it cannot control a terminal."""
        files = [{"path": file.path, "verdict": file.verdict} | msgspec.to_builtins(file) for file in self.files]
        return _encoded({"paths": self.paths, "verdict": self.verdict, "n_skipped": self.n_skipped, "files": files})

    def to_sarif(self) -> str:
        """Return the findings as SARIF 2.1.0, for code scanning services, in ASCII."""
        results = [_sarif_result(file.path, finding) for file in self.files for finding in file.findings]
        return sarif_text("scan", _RULES, results, about=[*self.paths, *(file.path for file in self.files)])


def _sarif_result(path: str, finding: ScanFinding) -> SarifResult:
    keys = ("name", "deeds", "count", "arguments", "position", "is_swept")
    offset = finding.offset
    return SarifResult(
        rule=finding.severity,
        message=f"{finding.name}: {finding.message}" if finding.name else finding.message,
        path=path,
        span=None if offset is None else (offset, offset + 1),
        parts=() if finding.member is None else (finding.member,),
        properties={key: getattr(finding, key) for key in keys},
    )


def _row(finding: ScanFinding) -> tuple[str, ...]:
    return finding.severity, finding.name or "", finding.message, f"{finding.count:,}", finding.member or ""


def _encoded(value: object) -> str:
    return json.dumps(value, indent=2).replace("\x7f", r"\u007f")

"""What a scan found: plain values, for people, as JSON, and as SARIF."""

from __future__ import annotations

import json
from typing import Final, Literal

import msgspec

from tensorkeep.scanner._sarif import sarif_document

Verdict = Literal["clean", "unknown", "dangerous", "unreadable"]
"""`"clean"`: plain data and tensors; `"unknown"`: names that would be imported, none known to be dangerous;
`"dangerous"`: names that could only do harm; `"unreadable"`: it breaks its format or a bound, so nobody can say."""

Severity = Literal["dangerous", "unreadable", "suspicious", "unknown"]

SEVERITIES: Final[tuple[Severity, ...]] = ("dangerous", "unreadable", "suspicious", "unknown")
"""From the worst on."""

_VERDICTS: Final[dict[Severity, Verdict]] = {
    "dangerous": "dangerous",
    "unreadable": "unreadable",
    "suspicious": "unknown",
    "unknown": "unknown",
}
_VERDICT_ORDER: Final[tuple[Verdict, ...]] = ("dangerous", "unreadable", "unknown")


class ScanFinding(msgspec.Struct, frozen=True, kw_only=True):
    """One thing in a file that is not plain data.

    Attributes:
        severity: `"dangerous"`: it could only do harm; `"unreadable"`: it is broken, or over a bound; `"suspicious"`:
            it may do harm, and honest files hold it too; `"unknown"`: nothing is known of it.
        message: What it is or does, in a few words.
        member: The member of an archive, slashes between archives in each other; None for the file itself.
        position: Byte of the member's contents, or of the file; None where it is about all of it.
        offset: The same byte, counted from the start of the file; None where the member is compressed.
        name: What would be imported, such as `"os.system"`; None where no name is concerned.
        deeds: What would be done with it: `"import"`, `"call"`, `"build"` (state is set), `"extension"` (it is looked
            up by a number).
        count: How often.
        arguments: What it would be called with, in short: one text for each call that differs.
        is_swept: Whether it was found in a part that cannot be run through.
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
    """What one file holds.

    Attributes:
        path: The file.
        form: What it is, such as `"PyTorch zip archive"`.
        n_pickles: Pickles in it that were looked through.
        findings: All that is not plain data, the worst first.
        known_names: The names in it that stand for plain data and tensors.
    """

    path: str
    form: str
    n_pickles: int
    findings: tuple[ScanFinding, ...] = ()
    known_names: tuple[str, ...] = ()

    @property
    def verdict(self) -> Verdict:
        """What it comes to."""
        severities = {finding.severity for finding in self.findings}
        return next((_VERDICTS[severity] for severity in SEVERITIES if severity in severities), "clean")


class ScanReport(msgspec.Struct, frozen=True):
    """What a scan found. Nothing of what it lists was run.

    Attributes:
        paths: What was scanned.
        files: The files that can hold code, and files of tensors.
        n_skipped: Files of a directory that are neither.
    """

    paths: tuple[str, ...]
    files: tuple[ScannedFile, ...]
    n_skipped: int = 0

    @property
    def findings(self) -> tuple[ScanFinding, ...]:
        """What was found in all files."""
        return tuple(finding for file in self.files for finding in file.findings)

    @property
    def verdict(self) -> Verdict:
        """What it comes to: the worst of the files, of which `"dangerous"` is worse than `"unreadable"`."""
        verdicts = {file.verdict for file in self.files}
        return next((verdict for verdict in _VERDICT_ORDER if verdict in verdicts), "clean")

    @property
    def is_clean(self) -> bool:
        """Whether there is nothing but plain data and tensors."""
        return self.verdict == "clean"

    def to_json(self) -> str:
        """Return everything as JSON; ASCII, so that a terminal obeys none of it."""
        files = [{"path": file.path, "verdict": file.verdict} | msgspec.to_builtins(file) for file in self.files]
        return _encoded({"paths": self.paths, "verdict": self.verdict, "n_skipped": self.n_skipped, "files": files})

    def to_sarif(self) -> str:
        """Return the findings as SARIF 2.1.0, for services that show alerts; ASCII."""
        return _encoded(sarif_document((file.path, msgspec.to_builtins(file)["findings"]) for file in self.files))


def _encoded(value: object) -> str:
    return json.dumps(value, indent=2).replace("\x7f", r"\u007f")

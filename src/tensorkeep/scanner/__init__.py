"""What a file would run if it were loaded by others: every name in every pickle in it, found without running any.

- `_scan`: `scan`, for files and directories.
- `_look`: one file, and what is in it.
- `_look_at_pickles`: one file, and what is in it.
- `_look_at_zip`: one file, and what is in it.
- `_look_at_keras`: one file, and what is in it.
- `_tar_members`: what a piece of a file may be taken for.
- `_forms`: what a piece of a file may be taken for.
- `_content`: what a piece of a file may be taken for.
- `_findings`: what was found.
- `_report`: what was found.
- `_sarif`: what was found.
"""

from tensorkeep.scanner._report import ScanFinding, ScannedFile, ScanReport, Severity, Verdict
from tensorkeep.scanner._scan import scan

__all__ = [
    "ScanFinding",
    "ScanReport",
    "ScannedFile",
    "Severity",
    "Verdict",
    "scan",
]

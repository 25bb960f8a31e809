"""Finds what a file would run if another program loaded it: every name in every pickle. Nothing is run.

- `_scan`: `scan`, for files and directories.
- `_scan_file`: one file, scanned as every format it may be taken for.
- `_scan_pickles`: pickles, legacy files of torch, arrays of objects.
- `_scan_zip`: zip archives and their members.
- `_scan_keras`: the configuration of a Keras model.
- `_tar_members`: the members of any tar archive.
- `_forms`: the formats that bytes may be taken for, by their start.
- `_content`: a file or a member of an archive.
- `_findings`: collects the findings of one file.
- `_report`: the result, and its JSON.
- `_sarif`: the result as SARIF.
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

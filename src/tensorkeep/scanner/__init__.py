"""Finds what a file would run if another program loaded it: every name in every pickle. Nothing is run.

- `_scan`: `scan`, for files and directories.
- `_indexed`: the files that an index names.
- `_scan_file`: one file, scanned as every format it may be taken for.
- `_scan_pickles`: pickles, legacy files of torch, tar archives of torch 0.1.
- `_scan_arrays`: NumPy's `.npy` files.
- `_scan_zip`: zip archives and their members.
- `_scan_exported`: programs of torch.export, which are zip archives.
- `_scan_tar`: tar archives and their members.
- `_programs`: members that are run without any pickle.
- `models/`: formats that describe models: Keras.
- `_forms`: the formats that bytes may be taken for, by their start.
- `_compression`: whether bytes are compressed as a whole.
- `_content`: a file or a member of an archive.
- `_read_ahead`: the ends of many members, read together.
- `_findings`: collects the findings of one file.
- `_policy`: what a policy refuses.
- `_report`: the result, as JSON and as SARIF.
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

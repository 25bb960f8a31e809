"""Everything a pickle asks for, as a report.

- `_name_scan`: names found by reading opcodes without executing them.
- `_audit`: what a pickle would import, call and build.
- `_row`: pickles that follow each other, and whether bytes are pickles at all.
"""

from tensorkeep.formats.pickles.audit._audit import (
    Audit,
    Mention,
    audit_outline,
    audit_pickle,
    audit_tar,
    check_legacy,
)
from tensorkeep.formats.pickles.audit._name_scan import PICKLE_SUFFIXES
from tensorkeep.formats.pickles.audit._row import (
    Row,
    are_pickles,
    audit_row,
    begins_like_a_pickle,
    declares_protocol,
    is_legacy,
)

__all__ = [
    "PICKLE_SUFFIXES",
    "Audit",
    "Mention",
    "Row",
    "are_pickles",
    "audit_outline",
    "audit_pickle",
    "audit_row",
    "audit_tar",
    "begins_like_a_pickle",
    "check_legacy",
    "declares_protocol",
    "is_legacy",
]

"""Everything a pickle asks for, as a report.

- `_name_scan`: names found by reading opcodes without executing them.
- `_audit`: what a pickle would import, call and build.
"""

from tensorkeep.formats.pickles.audit._audit import Audit, Mention, audit_pickle, audit_tar, check_legacy
from tensorkeep.formats.pickles.audit._name_scan import PICKLE_SUFFIXES, begins_like_a_pickle

__all__ = [
    "PICKLE_SUFFIXES",
    "Audit",
    "Mention",
    "audit_pickle",
    "audit_tar",
    "begins_like_a_pickle",
    "check_legacy",
]

"""Everything a pickle asks for, for a report.

- `_sweep`: all that a pickle asks for, for a report.
- `_audit`: all that a pickle asks for, for a report.
"""

from tensorkeep.formats.pickles.audit._audit import Audit, Mention, audit_pickle, audit_tar, check_legacy
from tensorkeep.formats.pickles.audit._sweep import PICKLE_SUFFIXES, begins_like_a_pickle

__all__ = [
    "PICKLE_SUFFIXES",
    "Audit",
    "Mention",
    "audit_pickle",
    "audit_tar",
    "begins_like_a_pickle",
    "check_legacy",
]

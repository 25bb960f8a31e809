"""Policies: whose signatures count, and what these prove about the files at a path.

- `_patterns`: which paths and URLs a rule is about.
- `_policy`: `Policy`, and its file.
- `_proof`: what signatures say about files. Pure.
- `_keyless`: signatures without keys.
- `_authorities`: signatures with certificates.
- `_unsigned`: which files need no signature.
- `_prove`: finds and checks the signatures of what is at a path.
"""

from tensorkeep.trust._authorities import Authority
from tensorkeep.trust._policy import Identity, Policy, Rule, Trust
from tensorkeep.trust._proof import ALGORITHMS, Proof
from tensorkeep.trust._prove import prove
from tensorkeep.trust._unsigned import is_accounted_for

__all__ = [
    "ALGORITHMS",
    "Authority",
    "Identity",
    "Policy",
    "Proof",
    "Rule",
    "Trust",
    "is_accounted_for",
    "prove",
]

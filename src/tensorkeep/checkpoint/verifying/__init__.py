"""Whether every byte is the one that was saved.

- `_sums`: checksums of bytes in a source.
- `_run`: checks of any kind of file, run.
- `_folder`: a directory compared with its manifest.
- `_verify`: whatever is at a path, verified.
"""

from tensorkeep.checkpoint.verifying._folder import verify_folder
from tensorkeep.checkpoint.verifying._run import find_damage, run_checks
from tensorkeep.checkpoint.verifying._sums import digest_of_file, sha256_of
from tensorkeep.checkpoint.verifying._verify import verify

__all__ = [
    "digest_of_file",
    "find_damage",
    "run_checks",
    "sha256_of",
    "verify",
    "verify_folder",
]

"""Verification: is every byte the one that was saved?

- `_sums`: checksums of bytes in a source.
- `_block_trees`: the digests of the blocks of a file.
- `_by_executor`: checksums that workers compute.
- `_run`: runs the checks that a kind lists.
- `_kept`: checks by the SHA-256 that somebody else keeps.
- `_unopened`: files too damaged to open.
- `_folder`: `verify_folder`, for a directory with a manifest.
- `_trusted`: what trusted signatures say of the files.
- `_verify`: `verify`, for whatever is at a path.
"""

from tensorkeep.checkpoint.verifying._block_trees import tree_over
from tensorkeep.checkpoint.verifying._folder import verify_folder
from tensorkeep.checkpoint.verifying._run import find_damage, run_checks
from tensorkeep.checkpoint.verifying._sums import digest_of_file, root_of_file, sha256_of
from tensorkeep.checkpoint.verifying._verify import verify

__all__ = [
    "digest_of_file",
    "find_damage",
    "root_of_file",
    "run_checks",
    "sha256_of",
    "tree_over",
    "verify",
    "verify_folder",
]

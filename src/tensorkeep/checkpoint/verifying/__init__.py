"""Whether every byte is the one that was saved.

- `_sha256`: the name that Git LFS and the Hub give to a file.
- `_safetensors`: whether every byte of files of one kind is the one that was saved.
- `_pickles`: whether every byte of files of one kind is the one that was saved.
- `_dcp`: whether what many ranks wrote is whole.
- `_folder`: a directory held against its manifest.
- `_verify`: whatever stands at a path, verified.
"""

from tensorkeep.checkpoint.verifying._dcp import verify_distributed
from tensorkeep.checkpoint.verifying._folder import digest_of_file, has_manifest, read_manifest, verify_folder
from tensorkeep.checkpoint.verifying._pickles import verify_pickled
from tensorkeep.checkpoint.verifying._sha256 import sha256_of
from tensorkeep.checkpoint.verifying._verify import verify

__all__ = [
    "digest_of_file",
    "has_manifest",
    "read_manifest",
    "sha256_of",
    "verify",
    "verify_distributed",
    "verify_folder",
    "verify_pickled",
]

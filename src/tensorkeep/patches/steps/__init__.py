"""Checkpoints that are kept as the files of another one and patches.

- `_write`: writes one.
"""

from tensorkeep.patches.steps._write import link_files, write_patched

__all__ = ["link_files", "write_patched"]

"""The file forms a pickle comes in.

- `_window`: one file, whatever its form.
- `_legacy_stream`: one file, whatever its form.
- `_tar`: one file, whatever its form.
- `_read`: one file, whatever its form.
"""

from tensorkeep.formats.pickles.containers._legacy_stream import LEGACY_MAGIC, read_legacy
from tensorkeep.formats.pickles.containers._read import is_pickled, read_pickle
from tensorkeep.formats.pickles.containers._tar import read_tar

__all__ = [
    "LEGACY_MAGIC",
    "is_pickled",
    "read_legacy",
    "read_pickle",
    "read_tar",
]

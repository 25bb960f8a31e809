"""The file forms that hold pickles.

- `_window`: pickles and raw bytes that follow each other.
- `_legacy_stream`: what torch wrote before 1.6.
- `_tar`: what torch 0.1 wrote.
- `_outline`: a bare pickle without its long values, which stay in the file.
- `_read`: `read_pickle`, for every form; zip archives and bare pickles are read here.
"""

from tensorkeep.formats.pickles.containers._legacy_stream import LEGACY_MAGIC, read_legacy
from tensorkeep.formats.pickles.containers._outline import has_outline, run_outline
from tensorkeep.formats.pickles.containers._read import is_pickled, read_pickle
from tensorkeep.formats.pickles.containers._tar import read_tar

__all__ = [
    "LEGACY_MAGIC",
    "has_outline",
    "is_pickled",
    "read_legacy",
    "read_pickle",
    "read_tar",
    "run_outline",
]

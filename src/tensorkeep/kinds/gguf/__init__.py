"""GGUF: one file, or the shards of a model as one.

- `_location`: which files a path means.
- `_file`: `GgufFile`, what is open.
- `_kind`: `GGUF`.
"""

from tensorkeep.kinds.gguf._file import GgufFile
from tensorkeep.kinds.gguf._kind import GGUF

__all__ = [
    "GGUF",
    "GgufFile",
]

"""Where are the bytes? Everything that touches a file system stands here; nothing here knows what bytes mean.

- `_base`: `ByteRange`, and the protocols `ByteSource` (read) and `ByteSink` (write).
- `_platform`: positioned reads, gathered writes, preallocation: the system calls, each with a portable fallback.
- `_mounts`: which file system a path is on, and whether mapping pays there.
- `_memory`, `_local`, `_stream`: sources over bytes in memory, local files (mapped or read), seekable file objects.
- `_open`: the source that fits what the caller has.
- `_publish`: a file that appears complete or not at all.
"""

from tensorkeep.buffers import Buffer
from tensorkeep.transport._base import BACKENDS, Backend, ByteRange, ByteSink, ByteSource
from tensorkeep.transport._local import LocalFile
from tensorkeep.transport._memory import MemorySource
from tensorkeep.transport._open import Openable, open_source
from tensorkeep.transport._publish import publish, sweep_leftovers
from tensorkeep.transport._stream import StreamSource

__all__ = [
    "BACKENDS",
    "Backend",
    "Buffer",
    "ByteRange",
    "ByteSink",
    "ByteSource",
    "LocalFile",
    "MemorySource",
    "Openable",
    "StreamSource",
    "open_source",
    "publish",
    "sweep_leftovers",
]

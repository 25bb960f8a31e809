"""Sources of bytes.

- `_base`: `ByteRange`, and the protocols `ByteSource` (read) and `ByteSink` (write).
- `_memory`: bytes in memory.
- `_local`: local files, mapped or read.
- `_stream`: seekable file objects.
- `_blocks`: parts, read in blocks that are checked.
- `_digested_ranges`: which ranges have which digest.
- `_verifying`: checks bytes against their digests while they are read.
- `_joined`: ranges of other sources, concatenated.
"""

from tensorkeep.transport.sources._base import (
    BACKENDS,
    Backend,
    ByteRange,
    ByteSink,
    ByteSource,
    ExtensibleSink,
    RunSource,
    extends,
    reads_runs,
)
from tensorkeep.transport.sources._digested_ranges import DigestedRanges
from tensorkeep.transport.sources._joined import JoinedSource
from tensorkeep.transport.sources._local import Descriptor, LocalFile, reading_alone
from tensorkeep.transport.sources._memory import MemorySource
from tensorkeep.transport.sources._stream import StreamSource
from tensorkeep.transport.sources._verifying import (
    CheckedRange,
    VerifyingSource,
    prove_here,
    was_proven_here,
    was_replaced,
)

__all__ = [
    "BACKENDS",
    "Backend",
    "ByteRange",
    "ByteSink",
    "ByteSource",
    "CheckedRange",
    "Descriptor",
    "DigestedRanges",
    "ExtensibleSink",
    "JoinedSource",
    "LocalFile",
    "MemorySource",
    "RunSource",
    "StreamSource",
    "VerifyingSource",
    "extends",
    "prove_here",
    "reading_alone",
    "reads_runs",
    "was_proven_here",
    "was_replaced",
]

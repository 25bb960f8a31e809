"""A remote object as a byte source, with a cache.

- `_source`: an object as a source of bytes, always the same version.
- `_fingerprint`: what tells a place from all others.
- `_block_files`: blocks of bytes on the disk, as many as a bound allows.
- `_cache`: objects of which blocks are kept there.
"""

from tensorkeep.transport.remote.reading._cache import cached
from tensorkeep.transport.remote.reading._fingerprint import fingerprint_of
from tensorkeep.transport.remote.reading._source import RemoteSource

__all__ = [
    "RemoteSource",
    "cached",
    "fingerprint_of",
]

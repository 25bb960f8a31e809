"""A remote object as a byte source, with a cache.

- `_source`: an object as a source of bytes, always the same version.
- `_fingerprint`: a digest that identifies a URL with its options.
- `_block_files`: cached blocks in files, up to a bound.
- `_cache`: objects whose blocks are cached.
"""

from tensorkeep.transport.remote.reading._cache import cached
from tensorkeep.transport.remote.reading._fingerprint import fingerprint_of
from tensorkeep.transport.remote.reading._source import RemoteSource

__all__ = [
    "RemoteSource",
    "cached",
    "fingerprint_of",
]

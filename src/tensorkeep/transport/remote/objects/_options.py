"""How objects are read: sizes, timeouts, retries."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from tensorkeep.transport.remote.objects._retries import Patience

_Count = Annotated[int, Meta(ge=1)]
_Nbytes = Annotated[int, Meta(ge=0)]
_Seconds = Annotated[float, Meta(ge=0)]


class RemoteOptions(msgspec.Struct, frozen=True):
    """Read options.

    Attributes:
        head_nbytes: Bytes of the first request; the headers of most files are shorter.
        gap_nbytes: Unwanted bytes between two ranges up to which one request covers both.
        request_nbytes: Most bytes of one request.
        connections: Parallel requests of one read.
        attempts: Attempts in a row that may fail temporarily.
        pause_s: Seconds between the first two attempts; the pause doubles each time.
        longest_pause_s: Longest pause between two attempts, even if a server asks for more.
        timeout_s: Seconds without a byte after which a request fails; no pause is longer either.
        whole_nbytes: Size up to which an object is read as a whole if the server does not support ranges; of a larger
            one, its beginning up to this size.
        cache_dir: Directory for cached blocks; None for no cache.
        cache_nbytes: Most bytes of all cached blocks together.
    """

    head_nbytes: _Count = 2**17
    gap_nbytes: _Nbytes = 2**14
    request_nbytes: _Count = 2**24
    connections: _Count = 16
    attempts: _Count = 6
    pause_s: _Seconds = 0.1
    longest_pause_s: _Seconds = 30.0
    timeout_s: Annotated[float, Meta(gt=0)] = 30.0
    whole_nbytes: _Nbytes = 2**26
    cache_dir: str | None = None
    cache_nbytes: _Nbytes = 10 * 10**9

    def patience(self) -> Patience:
        """Return a new count of attempts."""
        return Patience(self.attempts, self.pause_s, min(self.longest_pause_s, self.timeout_s))

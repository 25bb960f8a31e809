"""How objects are read: sizes, times and how many of everything."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from tensorkeep.transport.remote.objects._retries import Patience

_Count = Annotated[int, Meta(ge=1)]
_Nbytes = Annotated[int, Meta(ge=0)]
_Seconds = Annotated[float, Meta(ge=0)]


class RemoteOptions(msgspec.Struct, frozen=True):
    """How objects are read.

    Attributes:
        head_nbytes: Bytes that the first request asks for; the headers of most files are shorter.
        gap_nbytes: Unwanted bytes between two ranges up to which one request brings both.
        request_nbytes: Bytes of one request.
        connections: Requests of one read that are under way at a time.
        attempts: How often in a row a request may fail that may succeed if it is made again.
        pause_s: Seconds between the first two attempts; then each time about twice as long.
        longest_pause_s: Seconds between two attempts at most, also where a server asks for more.
        timeout_s: Seconds without a byte after which a request has failed.
        whole_nbytes: Size up to which an object is read whole where the server serves no ranges.
        needs_ranges: Whether a larger one is refused there; else it can be opened, and copied as a whole.
        cache_dir: Directory in which blocks are kept, so that none is asked for twice; None where none are kept.
        cache_nbytes: Bytes of all blocks in it together, at most.
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
    needs_ranges: bool = True
    cache_dir: str | None = None
    cache_nbytes: _Nbytes = 10 * 10**9

    def patience(self) -> Patience:
        """Return what counts the attempts of one request."""
        return Patience(self.attempts, self.pause_s, self.longest_pause_s)

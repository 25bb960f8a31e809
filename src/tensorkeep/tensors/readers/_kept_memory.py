"""Memory that is used again: each run of a tensor that is streamed takes what the run before it has freed."""

from __future__ import annotations

from functools import cache
from typing import Final

import numpy as np

_FREED_NBYTES: Final = 2**23


@cache
def keep_freed_memory() -> None:
    """Let the C library keep up to 16 MiB of freed memory for each thread, once for the process.

    Runs are some hundreds of kilobytes. By default, glibc returns such blocks to the system when they are freed, and
    page faults for the next run take as long as computing it. It keeps twice the size of the largest block that was
    ever freed; this one is never written to, so it takes no memory.
    """
    np.empty(_FREED_NBYTES, np.uint8)

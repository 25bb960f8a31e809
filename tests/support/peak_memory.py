"""Memory that is measured where no other test can use any: in a process of its own, which has no other threads."""

from __future__ import annotations

import os
import pickle
import traceback
import tracemalloc
from collections.abc import Callable
from typing import Any

__all__ = ["with_peak"]


def with_peak(function: Callable[..., Any], *args: Any) -> tuple[Any, int]:
    """Return what a function returns, and the most bytes that Python and NumPy had allocated in it at a time.

    Args:
        function: Called in a fork of this process.
        *args: What it is called with.
    """
    reader, writer = os.pipe()
    pid = os.fork()
    if not pid:
        try:
            tracemalloc.start()
            result = function(*args)
            os.write(writer, pickle.dumps((result, tracemalloc.get_traced_memory()[1])))
            os._exit(0)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(1)
    os.close(writer)
    with open(reader, "rb") as told:
        data = told.read()
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0, "what was measured failed: see its traceback"
    found: tuple[Any, int] = pickle.loads(data)
    return found

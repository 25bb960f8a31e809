"""Reads that are done side by side."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection
from typing import TypeVar

__all__ = ["for_all"]

_Item = TypeVar("_Item")


def for_all(items: Collection[_Item], work: Callable[[_Item], object], *, n_threads: int) -> None:
    """Do work for each item, some at a time, this thread being one of them; the first that fails ends the others.

    Args:
        items: What to do it for, in this order.
        work: What is to be done. What it raises is raised here, when all threads have ended.
        n_threads: How many at a time.
    """
    waiting = iter(items)
    lock = threading.Lock()
    failures: list[BaseException] = []

    def run() -> None:
        while not failures:
            with lock:
                found = next(waiting, failures)
            if found is failures:
                return
            try:
                work(found)  # type: ignore[arg-type]
            except BaseException as error:  # noqa: BLE001 - raised again below
                failures.append(error)

    threads = [threading.Thread(target=run, name="tensorkeep-read") for _ in range(min(n_threads, len(items)) - 1)]
    for thread in threads:
        thread.start()
    run()
    for thread in threads:
        thread.join()
    if failures:
        try:
            raise failures[0]
        finally:
            failures.clear()  # this frame is held by the error, which it must not hold

"""Parallel work whose first failure ends the rest."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection
from typing import TypeVar

_Item = TypeVar("_Item")


def for_all(items: Collection[_Item], work: Callable[[_Item], object], *, n_threads: int) -> None:
    """Run `work` for each item in parallel threads, including this one; the first failure ends the others."""
    waiting = iter(items)
    lock = threading.Lock()
    failures: list[BaseException] = []
    is_over = threading.Event()

    def run() -> None:
        while not is_over.is_set():
            with lock:
                found = next(waiting, is_over)
            if found is is_over:
                return
            try:
                work(found)  # type: ignore[arg-type]
            except BaseException as error:  # noqa: BLE001 - raised again below
                failures.append(error)
                is_over.set()

    n_others = min(n_threads, len(items)) - 1
    threads = [threading.Thread(target=run, name="tensorkeep-read", daemon=True) for _ in range(n_others)]
    for thread in threads:
        thread.start()
    run()
    if all(isinstance(failure, Exception) for failure in failures):  # an interrupt does not wait for slow answers
        for thread in threads:
            thread.join()
    if failures:
        try:
            raise failures[0]
        finally:
            failures.clear()  # this frame is held by the error, which it must not hold

"""Retries of requests that failed temporarily."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import TypeVar

from tensorkeep.errors import TransientError

_Result = TypeVar("_Result")


class Patience:
    """Counts failed attempts in a row, and waits between them, about twice as long each time."""

    def __init__(self, attempts: int, pause_s: float, longest_pause_s: float) -> None:
        self._attempts = attempts
        self._pause_s = pause_s
        self._longest_pause_s = longest_pause_s
        self._failed = 0

    def reset(self) -> None:
        """Reset the count, since there was progress."""
        self._failed = 0

    def fail(self, error: TransientError) -> None:
        """Wait after a failed attempt; raise its error if it was the last."""
        self._failed += 1
        if self._failed >= self._attempts:
            raise error
        pause_s = self._pause_s * 2 ** (self._failed - 1) * random.uniform(0.5, 1)  # noqa: S311 - spreads requests
        time.sleep(min(max(pause_s, error.retry_after_s or 0), self._longest_pause_s))

    def try_again(self, request: Callable[[], _Result]) -> _Result:
        """Repeat a request until it succeeds."""
        while True:
            try:
                return request()
            except TransientError as error:
                self.fail(error)

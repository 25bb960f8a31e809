"""A request that is made again when trying again may help."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import TypeVar

from tensorkeep.errors import TransientError

_Result = TypeVar("_Result")


class Patience:
    """Counts attempts that bring nothing, and waits between them, each time about twice as long."""

    def __init__(self, attempts: int, pause_s: float, longest_pause_s: float) -> None:
        self._attempts = attempts
        self._pause_s = pause_s
        self._longest_pause_s = longest_pause_s
        self._failed = 0

    def restore(self) -> None:
        """Forget the failures, since something came."""
        self._failed = 0

    def lose(self, error: TransientError) -> None:
        """Wait after an attempt that failed."""
        self._failed += 1
        if self._failed >= self._attempts:
            raise error
        pause_s = self._pause_s * 2 ** (self._failed - 1) * random.uniform(0.5, 1)  # noqa: S311 - spreads requests
        time.sleep(min(max(pause_s, error.retry_after_s or 0), self._longest_pause_s))

    def try_again(self, request: Callable[[], _Result]) -> _Result:
        """Make a request until it succeeds."""
        while True:
            try:
                return request()
            except TransientError as error:
                self.lose(error)

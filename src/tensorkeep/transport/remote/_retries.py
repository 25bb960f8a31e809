"""A request that is made again when trying again may help."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import Final, TypeVar

from tensorkeep.transport.remote._base import TransientError

__all__ = ["Patience"]

_Result = TypeVar("_Result")
_FIRST_PAUSE_S: Final = 0.1
_LONGEST_PAUSE_S: Final = 5.0


class Patience:
    """Counts attempts that bring nothing, and waits between them, each time about twice as long (full jitter).

    Args:
        attempts: How many in a row may fail.
    """

    def __init__(self, attempts: int) -> None:
        self._attempts = attempts
        self._failed = 0

    def restore(self) -> None:
        """Forget the failures, since something came."""
        self._failed = 0

    def lose(self, error: TransientError) -> None:
        """Wait after an attempt that failed.

        Args:
            error: Why it did.

        Raises:
            TransientError: The same, if there were as many as may be.
        """
        self._failed += 1
        if self._failed >= self._attempts:
            raise error
        longest = min(_FIRST_PAUSE_S * 2 ** (self._failed - 1), _LONGEST_PAUSE_S)
        time.sleep(random.uniform(longest / 2, longest))  # noqa: S311 - spreads requests, no secret

    def try_again(self, request: Callable[[], _Result]) -> _Result:
        """Make a request until it succeeds.

        Args:
            request: What is to be done; it changes nothing.

        Returns:
            What it returned.

        Raises:
            TransientError: If it failed too often.
        """
        while True:
            try:
                return request()
            except TransientError as error:
                self.lose(error)

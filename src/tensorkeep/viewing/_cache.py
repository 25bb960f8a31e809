"""Answers that took long, in bounded memory."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable
from typing import Final

MAX_NBYTES: Final = 32 * 2**20


class Cache:
    """Texts by key; those not asked for the longest go first."""

    def __init__(self, max_nbytes: int = MAX_NBYTES) -> None:
        self._max_nbytes = max_nbytes
        self._texts: OrderedDict[Hashable, bytes] = OrderedDict()
        self._nbytes = 0
        self._lock = threading.Lock()

    def get(self, key: Hashable) -> bytes | None:
        """Return a text, if it is there."""
        with self._lock:
            if key in self._texts:
                self._texts.move_to_end(key)
            return self._texts.get(key)

    def put(self, key: Hashable, text: bytes) -> None:
        """Keep a text, if it is not larger than all should be."""
        if len(text) > self._max_nbytes:
            return
        with self._lock:
            self._nbytes += len(text) - len(self._texts.pop(key, b""))
            self._texts[key] = text
            while self._nbytes > self._max_nbytes:
                _, removed = self._texts.popitem(last=False)
                self._nbytes -= len(removed)

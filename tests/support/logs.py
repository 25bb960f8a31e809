"""What is logged, for the few tests that want to know: pytest's own way costs every test milliseconds."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from io import StringIO


@contextmanager
def logged() -> Iterator[StringIO]:
    """Collect the text of all that is logged, at every level."""
    text = StringIO()
    handler = logging.StreamHandler(text)
    root = logging.getLogger()
    level = root.level
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    try:
        yield text
    finally:
        root.setLevel(level)
        root.removeHandler(handler)

"""Viewers for the length of a test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from tensorkeep.viewing import Viewer
from tests.support.viewing.client import Client


@pytest.fixture
def view() -> Iterator[Callable[..., Client]]:
    """Views something, until the test ends."""
    with ExitStack() as viewers:
        yield lambda path, other=None, **options: Client(viewers.enter_context(Viewer(path, other, **options)))

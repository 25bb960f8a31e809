"""Four processes for all tests of a module."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.integrations.distributed.gloo_ranks import Ranks


@pytest.fixture(scope="module")
def ranks() -> Iterator[Ranks]:
    with Ranks(4) as four:
        yield four

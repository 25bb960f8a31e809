"""A bucket that all contracts of a module share: starting a server takes longer than reading from it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.remote.s3_bucket import Bucket


@pytest.fixture(scope="module")
def bucket() -> Iterator[Bucket]:
    with Bucket.served() as served:
        yield served

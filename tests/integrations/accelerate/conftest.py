"""What the tests of accelerate share: each begins without the state that it keeps for a whole process."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from tests.support.integrations.accelerate.runs import forget_all


@pytest.fixture(autouse=True)
def _fresh_accelerate() -> Iterator[None]:
    n_threads = torch.get_num_threads()
    torch.set_num_threads(1)  # more only get in each other's way in such small networks
    forget_all()
    yield
    forget_all()
    torch.set_num_threads(n_threads)

"""Tiny models, written once for all tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support import SUPPORT, forks


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory with the models of `tests/support/tensor_parallel/tiny_models.py`."""
    folder = tmp_path_factory.mktemp("models")
    done = forks.run(SUPPORT / "tensor_parallel" / "tiny_models.py", folder, modules=forks.TRANSFORMERS)
    assert not done.returncode, done.stderr
    return folder

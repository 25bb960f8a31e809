"""Checkpoints that the libraries wrote, once for all tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support import ROOT, forks


@pytest.fixture(scope="session")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory with a checkpoint for each case; see `tests/support/quantized/write_all.py`."""
    directory = tmp_path_factory.mktemp("quantized") / "cases"
    program = ROOT / "tests" / "support" / "quantized" / "write_all.py"
    done = forks.run(program, directory, modules=forks.TRANSFORMERS)
    assert not done.returncode, done.stderr
    return directory

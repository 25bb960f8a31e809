"""The tests of each array library, in a process of its own: torch, TensorFlow and Paddle crash in one process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import ROOT

GROUPS = ("jax", "tensorflow", "mlx", "paddle")


@pytest.mark.parametrize("library", GROUPS)
def test_the_library_keeps_to_what_it_should(library: str, tmp_path: Path) -> None:
    here = Path(__file__).parent
    command = [
        *(sys.executable, "-m", "pytest", "-q", "-x", "--no-header", "-p", "no:cacheprovider"),
        *(f"--basetemp={tmp_path / 'tests'}", *sorted(map(str, here.glob(f"of_{library}*.py")))),
    ]
    quiet = {"TF_CPP_MIN_LOG_LEVEL": "3", "JAX_PLATFORMS": "cpu"}

    done = subprocess.run(
        command, cwd=ROOT, env=os.environ | quiet, capture_output=True, text=True, check=False, timeout=500
    )

    assert done.returncode == 0, (done.stdout + done.stderr)[-8000:]
    assert " passed" in done.stdout
    assert "skipped" not in done.stdout

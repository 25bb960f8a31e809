"""The tests of each array library, in a process of its own: torch, TensorFlow and Paddle crash in one process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import ROOT

GROUPS = {
    "jax": ("of_jax*.py", "of_keras.py"),
    "tensorflow": ("of_tensorflow*.py", "of_keras.py"),
    "torch": ("of_keras.py",),
    "mlx": ("of_mlx*.py",),
    "paddle": ("of_paddle*.py",),
}
"""The files of each library; Keras has three backends."""


@pytest.mark.parametrize("library", GROUPS)
def test_the_library_keeps_to_what_it_should(library: str, tmp_path: Path) -> None:
    here = Path(__file__).parent
    files = sorted(str(file) for pattern in GROUPS[library] for file in here.glob(pattern))
    command = [
        *(sys.executable, "-m", "pytest", "-q", "-x", "--no-header", "-p", "no:cacheprovider"),
        *(f"--basetemp={tmp_path / 'tests'}", *files),
    ]
    quiet = {"TF_CPP_MIN_LOG_LEVEL": "3", "JAX_PLATFORMS": "cpu", "KERAS_BACKEND": library}

    done = subprocess.run(
        command, cwd=ROOT, env=os.environ | quiet, capture_output=True, text=True, check=False, timeout=500
    )

    assert done.returncode == 0, (done.stdout + done.stderr)[-8000:]
    assert " passed" in done.stdout
    assert "skipped" not in done.stdout

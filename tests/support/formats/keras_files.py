"""Files that Keras itself writes, once for all tests: it is slow to import."""

from __future__ import annotations

import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from tests.support import SUPPORT
from tests.support.written_once import written_once


@cache
def written_by_keras() -> Path:
    """Return the folder of the files."""
    program = [sys.executable, SUPPORT / "formats" / "keras_models.py"]
    return written_once("keras", lambda folder: subprocess.run([*program, folder], check=True, capture_output=True))


def weights_by_keras(name: str) -> dict[str, Any]:
    """Return the weights of a file, as Keras says they are."""
    with np.load(written_by_keras() / f"{name}.npz") as weights:
        return dict(weights)

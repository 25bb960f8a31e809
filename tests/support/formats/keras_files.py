"""Files that Keras itself writes, once per process that runs tests: it is slow to import."""

from __future__ import annotations

import atexit
import shutil
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from tests.support import SUPPORT


@cache
def written_by_keras() -> Path:
    """Return the folder of the files."""
    folder = Path(tempfile.mkdtemp(prefix="keras-files-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    subprocess.run([sys.executable, SUPPORT / "formats" / "keras_models.py", folder], check=True, capture_output=True)
    return folder


def weights_by_keras(name: str) -> dict[str, Any]:
    """Return the weights of a file, as Keras says they are."""
    with np.load(written_by_keras() / f"{name}.npz") as weights:
        return dict(weights)

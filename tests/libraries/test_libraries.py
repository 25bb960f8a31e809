"""The tests of each array library, in a process of its own: torch, TensorFlow and Paddle crash in one process."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import ROOT
from tests.support.source import tree_of

ON_OTHER_BACKENDS = (
    "of_keras.py::TestKeras::test_a_resumed_run_is_the_uninterrupted_one",
    "of_keras.py::TestKeras::test_half_precision_is_exact",
    "of_keras.py::TestKeras::test_integers_of_other_backends_fit_if_their_values_do",
    "of_keras.py::TestKeras::test_metrics_layers_seeds_and_variables_by_name",
    "of_keras.py::TestStoreCheckpoint::test_a_killed_fit_continues_as_if_nothing_had_happened[True]",
)
"""The tests of Keras in which its backends differ. All of them run with torch, which needs the least time."""

GROUPS = {
    "jax": ("of_jax*.py", *ON_OTHER_BACKENDS),
    "tensorflow": ("of_tensorflow*.py", *ON_OTHER_BACKENDS),
    "torch": ("of_keras.py",),
    "mlx": ("of_mlx*.py",),
    "paddle": ("of_paddle*.py",),
}
"""The tests of each library."""


@pytest.mark.parametrize("library", GROUPS)
def test_the_library_keeps_to_what_it_should(library: str, tmp_path: Path) -> None:
    here = Path(__file__).parent
    files = [str(file) for pattern in GROUPS[library] for file in sorted(here.glob(pattern)) or [here / pattern]]
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


def test_no_other_test_brings_them_together() -> None:
    apart = {"keras", "paddle", "tensorflow"}
    found = [path for path in (ROOT / "tests").rglob("test_*.py") if imported_at_first(path) & apart]
    assert found == [], "use the library in a program of its own: it would be in the process of all tests"


def imported_at_first(path: Path) -> set[str]:
    """Return the packages that a module imports when it is imported."""
    at_first = [node for node in tree_of(path).body if isinstance(node, ast.Import | ast.ImportFrom)]
    names = [alias.name for node in at_first if isinstance(node, ast.Import) for alias in node.names]
    names += [node.module or "" for node in at_first if isinstance(node, ast.ImportFrom)]
    return {name.partition(".")[0] for name in names}

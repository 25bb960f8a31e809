"""What `import tensorkeep` costs, counted in modules and not in time: it must be cheap enough for every command."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = {"torch", "numpy", "msgspec", "ml_dtypes", "blake3", "typer", "rich", "safetensors", "tensorkeep.tensors"}


def modules_after(code: str) -> set[str]:
    """Return the modules that code brings into a fresh interpreter, beyond those that it starts with."""
    program = f"import sys; before = set(sys.modules); {code}; print(*(set(sys.modules) - before))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_importing_the_package_brings_in_hardly_anything() -> None:
    modules = modules_after("import tensorkeep")

    assert "tensorkeep" in modules
    assert not modules & HEAVY
    assert len(modules) <= 40, "typing and what it needs are 30"


@pytest.mark.parametrize(
    ("code", "absent"),
    [
        ("import tensorkeep; tensorkeep.TensorkeepError", {"msgspec", "numpy", "torch"}),
        ("import tensorkeep.transport", {"numpy", "torch", "urllib3", "http.client", "ssl"}),
        ("import tensorkeep.formats.safetensors", {"numpy", "torch", "ml_dtypes"}),
        ("import tensorkeep.arrays", {"numpy", "torch", "ml_dtypes"}),
        ("import tensorkeep; tensorkeep.open", {"torch", "ml_dtypes"}),
        ("import tensorkeep; tensorkeep.save", {"torch", "ml_dtypes"}),
        ("import tensorkeep.compat", {"torch", "safetensors"}),
    ],
)
def test_each_part_brings_in_only_what_it_needs(code: str, absent: set[str]) -> None:
    assert not modules_after(code) & absent


def test_numpy_tensors_need_no_torch() -> None:
    modules = modules_after(
        "import os, tempfile, numpy, tensorkeep; "
        "path = os.path.join(tempfile.mkdtemp(), 'x.safetensors'); "
        "tensorkeep.save({'x': numpy.ones(3)}, path); "
        "assert tensorkeep.load(path)['x'].sum() == 3; "
        "assert tensorkeep.open(path)['x'][:2].sum() == 2"
    )

    assert "tensorkeep.arrays.numpy._dense" in modules
    assert not modules & {"torch", "safetensors"}


def test_all_names_resolve_in_a_fresh_interpreter() -> None:
    code = "import tensorkeep; assert all(getattr(tensorkeep, name) is not None for name in tensorkeep.__all__)"

    assert "tensorkeep.compat" in modules_after(code)

"""`python -m tests.support.versions`: the core of the tests on other Pythons and dependencies.

Each run has a virtual environment of its own below `.venv/versions`, with the package as it would be installed from
PyPI, and only what the core of the tests needs. Without `--here`, every Python that is found here takes part, and the
lowest versions of all dependencies are tested on the oldest of them.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import sysconfig
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
PYTHONS = ("3.11", "3.12", "3.13", "3.14", "3.14t")
CORE = ("formats/safetensors", "formats/npy", "state", "tensors", "layout", "store", "threads", "transport/atomic")
"""The folders of tests that show whether a version fits: reading, writing, nested data, stores, threads."""
EXTRAS = "cli,remote,serve"
TOOLS = ("hypothesis", "psutil", "pytest", "pytest-timeout", "safetensors")
NO_WHEELS = {"3.14t": {"safetensors"}}
"""What would have to be compiled; tests that compare with it are left out and counted."""


class Run(NamedTuple):
    """A Python, and which versions of the dependencies it gets: pinned, lowest or newest."""

    python: Path
    name: str
    dependencies: str = "pinned"
    extras: str = EXTRAS


def main() -> int:
    """Run the core of the tests, and say how each run ended."""
    options = _parse()
    if options.here:
        extras = ",".join([EXTRAS, *options.extra])
        free = "t" if sysconfig.get_config_var("Py_GIL_DISABLED") else ""
        name = f"{sys.version_info.major}.{sys.version_info.minor}{free}"
        runs = [Run(Path(sys.executable), name, options.dependencies, extras)]
    else:
        runs = list(_found())
    results = [(run, _test(run)) for run in runs]
    for run, status in results:
        print(f"Python {run.name}, {run.dependencies} dependencies: {'failed' if status else 'passed'}")
    return int(any(status for _, status in results))


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--here", action="store_true", help="only the Python that runs this")
    parser.add_argument("--dependencies", choices=("pinned", "lowest", "newest"), default="pinned")
    parser.add_argument("--extra", action="append", default=[], help="another extra to install, such as torch")
    return parser.parse_args()


def _found() -> Iterator[Run]:
    found = {name: python for name in PYTHONS if (python := _python(name))}
    for name, python in found.items():
        yield Run(python, name)
    for name in PYTHONS:
        if name not in found:
            print(f"Python {name} is not here")
    if found:
        oldest = next(iter(found))
        yield Run(found[oldest], oldest, "lowest")


def _python(name: str) -> Path | None:
    """Return an interpreter: of pyenv, or on the path if it runs."""
    root = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"), "versions")
    known = [*sorted(root.glob(f"{name}.*/bin/python{name}")), shutil.which(f"python{name}")]
    for python in filter(None, known):
        if not subprocess.run([python, "-c", ""], capture_output=True, check=False).returncode:
            return Path(python)
    return None


def _test(run: Run) -> int:
    environment = ROOT / ".venv" / "versions" / f"{run.name}-{run.dependencies}"
    print(f"\n== Python {run.name}, {run.dependencies} dependencies", flush=True)
    subprocess.run([run.python, "-m", "venv", "--clear", environment], check=True)
    python = environment / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    installed = subprocess.run([python, "-m", "pip", "install", "-q", *_requirements(run, environment)], check=False)
    if installed.returncode:
        return installed.returncode
    timeout = ["-o", "timeout_method=thread"] if os.name == "nt" else []
    folders = [f"tests/{folder}" for folder in CORE]
    tests = [python, "-m", "pytest", "-p", "tests.support.core", "-p", "no:cacheprovider", "-q", "-r", "fE"]
    return subprocess.run([*tests, *timeout, *folders], cwd=ROOT, check=False).returncode


def _requirements(run: Run, environment: Path) -> list[str]:
    """Return what pip installs, with constraints as the run wants them."""
    tools = [tool for tool in TOOLS if tool not in NO_WHEELS.get(run.name, ())]
    wanted = [f"{ROOT}[{run.extras}]", *tools]
    if run.dependencies == "newest":
        return wanted
    if run.dependencies == "pinned":
        return ["--constraint", str(ROOT / "constraints.txt"), *wanted]
    lowest = environment / "lowest.txt"
    lowest.write_text("\n".join(_lowest(run.extras)), encoding="utf-8")
    return ["--constraint", str(lowest), *wanted]


def _lowest(extras: str) -> list[str]:
    """Return each dependency at the lowest version that pyproject.toml allows."""
    project = tomllib.loads(ROOT.joinpath("pyproject.toml").read_text(encoding="utf-8"))["project"]
    optional = project["optional-dependencies"]
    required = {*project["dependencies"], *(each for extra in extras.split(",") for each in optional[extra])}
    return [each.replace(">=", "==") for each in sorted(required) if not each.startswith("tensorkeep")]


if __name__ == "__main__":
    sys.exit(main())

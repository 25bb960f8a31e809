"""Nothing in the reader of pickles can import, call or change what a file names: said of the code itself."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import ROOT

PACKAGE = ROOT / "src" / "tensorkeep"
LISTS_DIRECTORIES = PACKAGE / "kinds" / "pickles" / "_location.py"
READERS = sorted(
    path
    for folder in ("formats/pickles", "kinds/pickles")
    for path in (PACKAGE / folder).rglob("*.py")
    if path != LISTS_DIRECTORIES
)
ALL = sorted(PACKAGE.rglob("*.py"))

UNPICKLERS = frozenset((
    "pickle",
    "_pickle",
    "cPickle",
    "dill",
    "cloudpickle",
    "marshal",
    "shelve",
    "joblib",
    "runpy",
))
RUNNERS = frozenset(("importlib", "imp", "ctypes", "os", "subprocess", "code", "codeop", "copyreg", "pickletools"))
RUNS_CODE = frozenset(("eval", "exec", "compile", "__import__", "breakpoint", "input", "globals", "locals", "open"))
LOOKS_UP = frozenset((
    "getattr",
    "setattr",
    "delattr",
    "hasattr",
    "vars",
    "attrgetter",
    "methodcaller",
    "import_module",
))
FILLS_RECORDS = {"formats/pickles/values/_records.py", "kinds/pickles/_tree.py"}
"""Files that fill the slots of an `Unknown` in a loop over their names."""

INSIDES = frozenset((
    "__globals__",
    "__builtins__",
    "__subclasses__",
    "__code__",
    "__class__",
    "__reduce__",
    "__setstate__",
))


def of(path: Path) -> str:
    return path.relative_to(PACKAGE).as_posix()


def nodes(path: Path) -> Iterator[ast.AST]:
    return ast.walk(ast.parse(path.read_text(encoding="utf-8"), str(path)))


def imported(path: Path) -> set[str]:
    found = set()
    for node in nodes(path):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return found


def called(node: ast.Call) -> str:
    return node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")


def test_there_is_code_to_look_at() -> None:
    assert len(READERS) > 25
    assert PACKAGE / "formats" / "pickles" / "machine" / "_loop.py" in READERS


@pytest.mark.parametrize("path", READERS, ids=of)
def test_no_reader_imports_what_unpickles_or_runs_code(path: Path) -> None:
    assert not {
        name for name in imported(path) if name.split(".")[0] in UNPICKLERS | {"importlib", "imp", "ctypes", "os"}
    }


@pytest.mark.parametrize("path", ALL, ids=of)
def test_nothing_in_the_package_imports_what_unpickles(path: Path) -> None:
    assert not {name for name in imported(path) if name.split(".")[0] in UNPICKLERS}


@pytest.mark.parametrize("path", READERS, ids=of)
def test_no_reader_evaluates_or_imports(path: Path) -> None:
    for node in nodes(path):
        if isinstance(node, ast.Name):
            assert node.id not in RUNS_CODE, (path.name, node.lineno)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "compile":
            assert isinstance(node.func.value, ast.Name), (path.name, node.lineno)
            assert node.func.value.id == "re", (path.name, node.lineno)


@pytest.mark.parametrize("path", READERS, ids=of)
def test_no_reader_looks_attributes_up_by_a_name_that_is_computed(path: Path) -> None:
    for node in nodes(path):
        if isinstance(node, ast.Call) and called(node) in LOOKS_UP - {"vars"}:
            assert len(node.args) > 1, (path.name, node.lineno)
            assert isinstance(node.args[1], ast.Constant), (path.name, node.lineno)
        if isinstance(node, ast.Call) and called(node) == "__setattr__" and of(path) not in FILLS_RECORDS:
            assert isinstance(node.args[1], ast.Constant), (path.name, node.lineno)
            assert node.args[1].value in {"state", "items"}, (path.name, node.lineno)


@pytest.mark.parametrize("path", READERS, ids=of)
def test_no_reader_reaches_behind_objects(path: Path) -> None:
    reached = {node.attr for node in nodes(path) if isinstance(node, ast.Attribute)}

    assert not reached & INSIDES
    for node in nodes(path):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "sys":
            assert node.attr == "byteorder", (path.name, node.lineno)


@pytest.mark.parametrize("path", ALL, ids=of)
def test_nothing_in_the_package_loads_with_torch_or_with_pickles_of_numpy(path: Path) -> None:
    for node in nodes(path):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            assert (node.value.id, node.attr) not in {
                ("torch", "load"),
                ("numpy", "load"),
                ("np", "load"),
                ("torch", "hub"),
            }
        if isinstance(node, ast.ImportFrom) and node.module == "torch":
            assert not {alias.name for alias in node.names} & {"load", "hub", "jit", "package"}
        if isinstance(node, ast.keyword):
            assert node.arg not in {"allow_pickle", "weights_only"}


READ = """
import sys
import tensorkeep.formats.pickles
from tensorkeep.formats.pickles.machine._context import Context
from tensorkeep.formats.pickles.machine._loop import run_pickle
loaded = set(sys.modules)
named = (b"cwave\\nopen\\n", b"cstringprep\\nmap_table_b2\\n", b"cthis\\ns\\n(tR", b"cantigravity\\nfly\\n(K\\x01tR")
named += (b"cos\\nsystem\\n(U\\x04ls -tR",)
value, _ = run_pickle(b"\\x80\\x02(" + b"".join(named) + b"l.", 0, Context(dangerous="record"))
print(sorted(set(sys.modules) - loaded), {"pickle", "_pickle", "torch"} & set(sys.modules))
print(value)
"""


def test_reading_imports_nothing_that_a_pickle_names() -> None:
    done = subprocess.run([sys.executable, "-c", READ], capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr
    imported, value = done.stdout.splitlines()
    assert imported == "[] set()"
    assert "Unknown(wave.open)" in value
    assert "Unknown(os.system(…): 1 argument)" in value

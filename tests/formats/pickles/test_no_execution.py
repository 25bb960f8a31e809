"""Nothing in the reader of pickles can import, call or change what a file names: said of the code itself."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

from tests.support.source import FILES, PACKAGE, imported_roots, nodes_of, relative

LISTS_DIRECTORIES = PACKAGE / "kinds" / "pickles" / "_location.py"
READERS = sorted(
    path
    for folder in ("formats/pickles", "kinds/pickles")
    for path in (PACKAGE / folder).rglob("*.py")
    if path != LISTS_DIRECTORIES
)

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


def called(node: ast.Call) -> str:
    return node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")


def test_there_is_code_to_look_at() -> None:
    assert len(READERS) > 25
    assert PACKAGE / "formats" / "pickles" / "machine" / "_loop.py" in READERS


def forbidden(paths: Iterable[Path], is_forbidden: Callable[[ast.AST], bool]) -> list[str]:
    """Return where the files do what they must not."""
    return [
        f"{relative(path)}:{getattr(node, 'lineno', 0)}: {ast.unparse(node)}"
        for path in paths
        for node in nodes_of(path)
        if is_forbidden(node)
    ]


def test_no_reader_imports_what_unpickles_or_runs_code() -> None:
    never = UNPICKLERS | {"importlib", "imp", "ctypes", "os"}

    assert [(relative(path), roots) for path in READERS if (roots := imported_roots(path) & never)] == []


def test_nothing_in_the_package_imports_what_unpickles() -> None:
    found = [(relative(path), roots) for path in FILES if (roots := imported_roots(path) & UNPICKLERS)]
    # `tensorkeep run` runs the program that the user names
    assert found == [("cli/commands/programs/_run.py", {"runpy"})]


def test_no_reader_evaluates_or_imports() -> None:
    def runs(node: ast.AST) -> bool:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "compile":
            return ast.unparse(node.func) != "re.compile"
        return isinstance(node, ast.Name) and node.id in RUNS_CODE

    assert forbidden(READERS, runs) == []


def test_no_reader_looks_attributes_up_by_a_name_that_is_computed() -> None:
    def is_computed(node: ast.AST) -> bool:
        if not isinstance(node, ast.Call) or called(node) not in LOOKS_UP - {"vars"}:
            return False
        return len(node.args) < 2 or not isinstance(node.args[1], ast.Constant)

    assert forbidden(READERS, is_computed) == []


def test_no_reader_sets_attributes_but_the_two_of_unknown() -> None:
    def sets_others(node: ast.AST) -> bool:
        if not isinstance(node, ast.Call) or called(node) != "__setattr__":
            return False
        return not isinstance(node.args[1], ast.Constant) or node.args[1].value not in {"state", "items"}

    assert forbidden([path for path in READERS if relative(path) not in FILLS_RECORDS], sets_others) == []


def test_no_reader_reaches_behind_objects() -> None:
    def reaches(node: ast.AST) -> bool:
        if not isinstance(node, ast.Attribute):
            return False
        is_of_sys = isinstance(node.value, ast.Name) and node.value.id == "sys"
        return node.attr in INSIDES or (is_of_sys and node.attr not in {"byteorder", "stdlib_module_names"})

    assert forbidden(READERS, reaches) == []


def test_nothing_in_the_package_loads_with_torch_or_with_pickles_of_numpy() -> None:
    def loads(node: ast.AST) -> bool:
        if isinstance(node, ast.Attribute):
            return ast.unparse(node) in {"torch.load", "numpy.load", "np.load", "torch.hub"}
        if isinstance(node, ast.ImportFrom) and node.module == "torch":
            return bool({alias.name for alias in node.names} & {"load", "hub", "jit", "package"})
        return isinstance(node, ast.keyword) and node.arg in {"allow_pickle", "weights_only"}

    assert forbidden(FILES, loads) == []


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

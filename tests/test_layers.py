"""The shape of the code, as docs and design say it: one direction of imports, small files, nothing that runs code."""

from __future__ import annotations

import ast
import graphlib
import importlib
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tensorkeep.arrays import LIBRARIES
from tests.support import ROOT

SOURCE = ROOT / "src"
PACKAGE = SOURCE / "tensorkeep"

LAYERS = (
    *("limits", "paths", "phrases", "redaction", "errors", "dtypes"),
    *("buffers", "forks", "digests", "entries", "collector", "parallel"),
    *("transport", "formats", "arrays", "state", "tensors", "layout", "kinds", "scanner"),
    *("checkpoint", "store", "conversion", "fetching", "models", "training", "server", "compat"),
    *("torch", "numpy", "install", "integrations", "", "cli", "__main__"),
)
"""Parts of the package, each of which imports only what stands before it; the empty name is its `__init__`."""

STRANGERS = {
    ("formats", "arrays"),
    ("arrays", "formats"),
    ("arrays", "transport"),
    ("torch", "numpy"),
    ("numpy", "torch"),
}
"""Parts that know nothing of each other, though the order would allow it."""

TRANSPORT_VOCABULARY = {"ByteRange", "ByteSource", "MemorySource"}
"""All that formats know of transport: something to read, what to read of it, and a file that is within another."""

IMPORTED_BY_NAME = {"__init__.py", "arrays/_registry.py", "install.py"}
"""Files that may import modules by name, on first use: public names, array libraries, stand-ins for safetensors."""

KNOWS_LIBRARIES = {
    *("arrays", "models", "training", "integrations", "torch", "numpy"),
    "formats/pickles",  # modules that pickles name
    "kinds/pickles/_data.py",  # objects of libraries that pickles hold
    "state/_described.py",  # NumPy's numbers, as NumPy writes them
}
"""Parts that may ask which array library something is of; all others ask the library's record."""

FILES = sorted(PACKAGE.rglob("*.py"))
FOLDERS = sorted(path.parent for path in PACKAGE.rglob("__init__.py") if path.parent != PACKAGE)


def relative(path: Path) -> str:
    return path.relative_to(PACKAGE).as_posix()


def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


def file_of(module: str) -> Path | None:
    """Return the file of a dotted name, or None where it names no module."""
    base = SOURCE.joinpath(*module.split("."))
    candidates = (base.with_suffix(".py"), base / "__init__.py")
    return next((path for path in candidates if path.is_file()), None)


def own_imports(tree: ast.AST) -> Iterator[tuple[Path, str | None]]:
    """Give the file that each import of own code names, and the name that is taken from it."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.split(".")[0] == "tensorkeep":
                    yield _existing(alias.name), None
        elif isinstance(node, ast.ImportFrom) and (node.level or (node.module or "").split(".")[0] == "tensorkeep"):
            assert not node.level, f"relative import in line {node.lineno}"
            for alias in node.names:
                submodule = file_of(f"{node.module}.{alias.name}")
                yield (submodule, None) if submodule else (_existing(node.module or ""), alias.name)


def _existing(module: str) -> Path:
    path = file_of(module)
    assert path is not None, f"no module {module}"
    return path


def layer_of(path: Path) -> str:
    first = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
    return "" if first == "__init__" else first


def calls(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            yield ast.unparse(node.func)


def test_every_part_has_its_place() -> None:
    parts = {layer_of(path) for path in FILES}

    assert parts <= set(LAYERS), f"say in LAYERS where {parts - set(LAYERS)} belong"
    assert set(LAYERS) <= parts, f"LAYERS names {set(LAYERS) - parts}, which do not exist"


@pytest.mark.parametrize("path", FILES, ids=relative)
def test_imports_go_one_way(path: Path) -> None:
    layer = layer_of(path)
    imported = {layer_of(target) for target, _ in own_imports(tree_of(path))} - {layer}

    assert imported <= set(LAYERS[: LAYERS.index(layer)])
    assert not {(layer, other) for other in imported} & STRANGERS


def test_formats_know_only_the_vocabulary_of_transport() -> None:
    taken = {
        name
        for path in PACKAGE.joinpath("formats").rglob("*.py")
        for target, name in own_imports(tree_of(path))
        if layer_of(target) == "transport"
    }

    assert taken <= TRANSPORT_VOCABULARY


def test_there_are_no_cycles_between_files() -> None:
    graph = {path: {target for target, _ in own_imports(tree_of(path))} for path in FILES}

    order = list(graphlib.TopologicalSorter(graph).static_order())  # raises CycleError, which shows the cycle

    assert set(order) == set(FILES)


@pytest.mark.parametrize("path", FILES, ids=relative)
def test_own_code_is_imported_at_the_top(path: Path) -> None:
    functions = [
        node
        for node in ast.walk(tree_of(path))
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))
    ]

    assert [target for function in functions for target, _ in own_imports(function)] == []


@pytest.mark.parametrize("path", FILES, ids=relative)
def test_nobody_else_asks_which_array_library_it_is(path: Path) -> None:
    if any(relative(path).removesuffix(".py").startswith(part.removesuffix(".py")) for part in KNOWS_LIBRARIES):
        return
    names = {name for library in LIBRARIES.values() for name in (library.name, *library.aliases)}

    assert not names & set(_texts_that_decide(tree_of(path))), "ask tensorkeep.arrays.library_for(...) instead"


def _texts_that_decide(tree: ast.AST) -> Iterator[str]:
    """Give the texts that something is compared with, and the keys of dicts and subscripts."""
    for node in ast.walk(tree):
        match node:
            case ast.Compare():
                parts = [node.left, *node.comparators]
            case ast.MatchValue():
                parts = [node.value]
            case ast.Dict():
                parts = [key for key in node.keys if key is not None]
            case ast.Subscript():
                parts = [node.slice]
            case _:
                continue
        for part in parts:
            yield from (inner.value for inner in _constants(part) if isinstance(inner.value, str))


def _constants(node: ast.AST) -> Iterator[ast.Constant]:
    """Give a constant, or those of a tuple, list or set that is written out."""
    if isinstance(node, ast.Constant):
        yield node
    elif isinstance(node, ast.Tuple | ast.List | ast.Set):
        for item in node.elts:
            yield from _constants(item)


def test_modules_are_imported_by_name_in_few_places() -> None:
    users = {relative(path) for path in FILES if any("import_module" in call for call in calls(tree_of(path)))}

    assert users <= IMPORTED_BY_NAME


@pytest.mark.parametrize("path", FILES, ids=relative)
def test_files_are_small_and_named_after_a_concept(path: Path) -> None:
    assert len(path.read_text(encoding="utf-8").splitlines()) <= 400
    assert path.stem.strip("_") not in {"utils", "util", "common", "helpers", "helper", "misc", "core", "base_utils"}


@pytest.mark.parametrize("path", FILES, ids=relative)
def test_nothing_runs_code_from_data(path: Path) -> None:
    tree = tree_of(path)
    imported = {
        name.split(".")[0]
        for node in ast.walk(tree)
        for name in (
            [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else [node.module or ""]
            if isinstance(node, ast.ImportFrom)
            else []
        )
    }

    assert not imported & {"pickle", "_pickle", "cPickle", "cloudpickle", "dill", "joblib", "marshal", "shelve"}
    assert not set(calls(tree)) & {"eval", "exec", "compile", "__import__", "torch.load", "np.load", "numpy.load"}


@pytest.mark.parametrize("folder", FOLDERS, ids=relative)
def test_a_folder_names_its_files_and_what_it_exports(folder: Path) -> None:
    tree = tree_of(folder / "__init__.py")
    exported = importlib.import_module(".".join(folder.relative_to(SOURCE).parts)).__all__
    bound = {
        alias.asname or alias.name for node in tree.body if isinstance(node, ast.ImportFrom) for alias in node.names
    }
    defined = {node.name for node in tree.body if isinstance(node, (ast.FunctionDef, ast.ClassDef))}
    docstring = ast.get_docstring(tree) or ""
    named = {name.rstrip("/") for line in docstring.splitlines() if line.startswith("- ") for name in _quoted(line)}
    stems = {path.stem for path in folder.iterdir() if path.suffix == ".py"} - {"__init__"}
    folders = {path.name for path in folder.iterdir() if (path / "__init__.py").is_file()}

    assert sorted(set(exported)) == sorted(exported), "names twice"
    assert set(exported) == (bound | defined) - {"annotations"}
    assert named == stems | folders


def _quoted(line: str) -> list[str]:
    return re.findall(r"`([\w/]+)`", line.partition(":")[0])

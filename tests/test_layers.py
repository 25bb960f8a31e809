"""The shape of the code, as docs and design say it: one direction of imports, small files, nothing that runs code."""

from __future__ import annotations

import ast
import graphlib
import re
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

from tensorkeep.arrays import LIBRARIES
from tests.support.source import (
    FILES,
    PACKAGE,
    SOURCE,
    exported_by,
    imported_roots,
    lines_of,
    nodes_of,
    relative,
    tree_of,
)

LAYERS = (
    *("limits", "variables", "paths", "texts", "markup", "sarif", "errors", "dtypes"),
    *("on_demand", "buffers", "parallel", "executors", "digests", "entries", "collector", "locks"),
    *(
        "transport",
        "formats",
        "encryption",
        "arrays",
        "state",
        "tensors",
        "layout",
        "signing",
        "trust",
        "quantized",
        "deltas",
        "kinds",
        "scanner",
    ),
    *(
        "checkpoint",
        "measuring",
        "merging",
        "transforms",
        "checking",
        "patches",
        "sampling",
        "pictures",
        "store",
        "conversion",
        "exporting",
        "fetching",
        "publishing",
        "tensor_parallel",
        "models",
        "runs",
        "training",
        "server",
        "viewing",
        "compat",
    ),
    *(
        "torch",
        "numpy",
        "jax",
        "flax",
        "tensorflow",
        "keras",
        "mlx",
        "paddle",
        "install",
        "integrations",
        "",
        "cli",
        "__main__",
    ),
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

IMPORTED_BY_NAME = {"on_demand.py", "arrays/_registry.py", "install.py", "kinds/base/_lazy.py"}
"""Files that may import modules by name, on first use: public names, array libraries, kinds of files,
stand-ins for safetensors."""

KNOWS_LIBRARIES = {
    *("arrays", "models", "runs", "training", "integrations"),
    *("torch", "numpy", "jax", "flax", "tensorflow", "keras", "mlx", "paddle"),
    "formats/pickles",  # modules that pickles name
    "tensors/readers/_engines.py",  # other libraries, which load tensors of torch
    "kinds/pickles/_data.py",  # objects of libraries that pickles hold
    "state/_described.py",  # NumPy's numbers, as NumPy writes them
}
"""Parts that may ask which array library something is of; all others ask the library's record."""

FOLDERS = sorted(path.parent for path in PACKAGE.rglob("__init__.py") if path.parent != PACKAGE)


@cache
def file_of(module: str) -> Path | None:
    """Return the file of a dotted name, or None where it names no module."""
    base = SOURCE.joinpath(*module.split("."))
    candidates = (base.with_suffix(".py"), base / "__init__.py")
    return next((path for path in candidates if path.is_file()), None)


def own_imports(nodes: Iterable[ast.AST]) -> Iterator[tuple[Path, str | None]]:
    """Give the file that each import of own code names, and the name that is taken from it."""
    for node in nodes:
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


@cache
def calls(path: Path) -> set[str]:
    return {ast.unparse(node.func) for node in nodes_of(path) if isinstance(node, ast.Call)}


def test_every_part_has_its_place() -> None:
    parts = {layer_of(path) for path in FILES}

    assert parts <= set(LAYERS), f"say in LAYERS where {parts - set(LAYERS)} belong"
    assert set(LAYERS) <= parts, f"LAYERS names {set(LAYERS) - parts}, which do not exist"


def test_imports_go_one_way() -> None:
    wrong = []
    for path in FILES:
        layer = layer_of(path)
        imported = {layer_of(target) for target, _ in own_imports(nodes_of(path))} - {layer}
        forbidden = imported - set(LAYERS[: LAYERS.index(layer)])
        forbidden |= {other for other in imported if (layer, other) in STRANGERS}
        wrong += [f"{relative(path)} imports {other}" for other in sorted(forbidden)]

    assert wrong == []


def test_formats_know_only_the_vocabulary_of_transport() -> None:
    taken = {
        name
        for path in PACKAGE.joinpath("formats").rglob("*.py")
        for target, name in own_imports(nodes_of(path))
        if layer_of(target) == "transport"
    }

    assert taken <= TRANSPORT_VOCABULARY


def test_there_are_no_cycles_between_files() -> None:
    graph = {path: {target for target, _ in own_imports(nodes_of(path))} for path in FILES}

    order = list(graphlib.TopologicalSorter(graph).static_order())  # raises CycleError, which shows the cycle

    assert set(order) == set(FILES)


def test_own_code_is_imported_at_the_top() -> None:
    functions = [
        (path, node)
        for path in FILES
        for node in nodes_of(path)
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))
    ]

    assert [
        f"{relative(path)}:{function.lineno}" for path, function in functions if any(own_imports(ast.walk(function)))
    ] == []


def test_nobody_else_asks_which_array_library_it_is() -> None:
    names = {name for library in LIBRARIES.values() for name in (library.name, *library.aliases)}
    asking = [
        relative(path)
        for path in FILES
        if not any(
            relative(path).removesuffix(".py").startswith(part.removesuffix(".py")) for part in KNOWS_LIBRARIES
        )
        and names & set(_texts_that_decide(path))
    ]

    assert asking == [], "ask tensorkeep.arrays.library_for(...) instead"


def _texts_that_decide(path: Path) -> Iterator[str]:
    """Give the texts that something is compared with, and the keys of dicts and subscripts."""
    for node in nodes_of(path):
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
    users = {relative(path) for path in FILES if any("import_module" in call for call in calls(path))}

    assert users <= IMPORTED_BY_NAME


def test_files_are_small() -> None:
    assert {relative(path): len(lines_of(path)) for path in FILES if len(lines_of(path)) > 400} == {}


def test_files_are_named_after_a_concept() -> None:
    nothing = {"utils", "util", "common", "helpers", "helper", "misc", "core", "base_utils"}

    assert [relative(path) for path in FILES if path.stem.strip("_") in nothing] == []


def test_nothing_runs_code_from_data() -> None:
    unpicklers = {"pickle", "_pickle", "cPickle", "cloudpickle", "dill", "joblib", "marshal", "shelve"}
    runners = {"eval", "exec", "compile", "__import__", "torch.load", "np.load", "numpy.load"}
    wrong = {
        relative(path): found
        for path in FILES
        if (found := imported_roots(path) & unpicklers | calls(path) & runners)
    }

    assert wrong == {}


def test_a_folder_names_its_files_and_what_it_exports() -> None:
    assert [fault for folder in FOLDERS for fault in faults_of_face(folder)] == []


def faults_of_face(folder: Path) -> Iterator[str]:
    """Say where a folder's docstring and `__all__` differ from what is in it."""
    tree = tree_of(folder / "__init__.py")
    exported = exported_by(tree)
    bound = {
        alias.asname or alias.name for node in tree.body if isinstance(node, ast.ImportFrom) for alias in node.names
    }
    defined = {node.name for node in tree.body if isinstance(node, (ast.FunctionDef, ast.ClassDef))}
    docstring = ast.get_docstring(tree) or ""
    named = {name.rstrip("/") for line in docstring.splitlines() if line.startswith("- ") for name in _quoted(line)}
    stems = {path.stem for path in folder.iterdir() if path.suffix == ".py"} - {"__init__"}
    folders = {path.name for path in folder.iterdir() if (path / "__init__.py").is_file()}
    if len(set(exported)) < len(exported):
        yield f"{relative(folder)}: __all__ has names twice"
    if difference := set(exported) ^ (bound | defined) - {"annotations", "__getattr__"}:
        yield f"{relative(folder)}: __all__ and what is imported differ in {sorted(difference)}"
    if difference := named ^ (stems | folders):
        yield f"{relative(folder)}: its docstring and its files differ in {sorted(difference)}"


def _quoted(line: str) -> list[str]:
    return re.findall(r"`([\w/]+)`", line.partition(":")[0])


KIND_CLASSES = {
    "Checkpoint",
    "TensorFile",
    "SavedTensors",
    "PickleFile",
    "PickleSet",
    "DistributedCheckpoint",
    "FlatFile",
}
"""Classes of what is open. Only their own folder may ask for them; all others ask `Opened`."""


def test_only_kinds_asks_which_class_is_open() -> None:
    for path in FILES:
        tree = tree_of(path)
        own = {
            name
            for target, name in own_imports(nodes_of(path))
            if layer_of(target) == "kinds" and name in KIND_CLASSES
        }
        asked = {
            ast.unparse(part)
            for node in ast.walk(tree)
            if isinstance(node, ast.Call) and ast.unparse(node.func) in {"isinstance", "issubclass"}
            for part in ast.walk(node.args[1])
            if isinstance(part, (ast.Name, ast.Attribute))
        }
        assert layer_of(path) == "kinds" or not asked & (own | {f"tensorkeep.{name}" for name in KIND_CLASSES}), path

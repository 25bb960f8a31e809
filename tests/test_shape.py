"""The measures of the source: small folders, few words inside, complete ones on what users import, plain English."""

from __future__ import annotations

import ast
import importlib
import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

from tests.support import ROOT
from tests.support.source import FILES, SOURCE, exported_by, lines_of, nodes_of, relative, tree_of

MAX_FILES_IN_A_FOLDER = 16
MAX_DOCSTRING_SHARE = 0.18
FACES = {"torch.py", "numpy.py", "flax.py", "tensorflow.py", "mlx.py", "paddle.py"}
"""Modules whose names and places safetensors chose."""

EXPLAINED = {
    "kinds/base/_flat_file.py",  # what a new format fills in
    "kinds/base/_place.py",  # what a new format is given
    "integrations/accelerate/_load.py",  # methods of the public Accelerator
    "integrations/accelerate/_save.py",
    "integrations/orbax/templates.py",  # users know it as `utils`
    "integrations/accelerate/_loaders.py",  # replaces a function of accelerate
}
"""Files whose definitions nobody imports, but some people implement or call."""

SECTION = re.compile(r"^ *(Args|Returns|Yields|Raises):$", re.MULTILINE)

TRANSLATED = {
    r"\bstand(?:s|ing)? (?:at|for|in|there|beside|before)\b": 16,
    r"\bis none\b|\bare none\b": 37,
    r"\bwhat is said of\b|\bis said of\b|\bsaid to be\b": 0,
    r"\bthose of\b|\bthat of\b|\bof which\b": 68,
    r"\bheld against\b|\bhold against\b|\bholds? .{1,30} against\b": 0,
    r"\bput together\b": 0,
    r"\banew\b|\bwho(?:m)?ever\b": 3,
    r"\bgoes on\b|\bgo on\b": 1,
    r"\bas many as\b": 2,
}
"""Turns that read like a translation, and how often they occur: the numbers only go down."""

Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


class Documented(NamedTuple):
    """A function, method or class, and whether users can import it."""

    path: Path
    name: str
    node: Definition
    is_public: bool

    @property
    def place(self) -> str:
        return f"{relative(self.path)}:{self.node.lineno} {self.name}"

    @property
    def docstring(self) -> str:
        return ast.get_docstring(self.node) or ""

    @property
    def parameters(self) -> set[str]:
        if isinstance(self.node, ast.ClassDef):
            return set()
        arguments = self.node.args
        named = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
        named += [argument for argument in (arguments.vararg, arguments.kwarg) if argument]
        return {argument.arg for argument in named} - {"self", "cls"}

    def section(self, title: str) -> set[str]:
        """Return the names that a section of the docstring explains."""
        begun = re.search(rf"^{title}:\n((?:(?: .*)?\n)*(?: .*)?)", self.docstring, re.MULTILINE)
        return set(re.findall(r"^    \*{0,2}(\w+)(?: \(.*\))?:", begun[1], re.MULTILINE)) if begun else set()


def module_of(path: Path) -> str:
    return ".".join(path.relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__")


MODULES = {module_of(path): path for path in FILES}
PUBLIC_MODULES = [
    name
    for name in MODULES
    if re.fullmatch(
        r"tensorkeep(\.(torch|numpy|jax|flax|tensorflow|keras|mlx|paddle|install|errors|dtypes|digests|server|viewing|merging|patches|transforms|quantized|signing|trust|integrations\.[a-z]+|integrations\.orbax\.(args|checkpoint_utils)))?",
        name,
    )
]


@cache
def origin_of(module: str, name: str) -> tuple[Path, str] | None:
    """Return where a name that can be imported from a module is defined."""
    if module not in MODULES or f"{module}.{name}" in MODULES:
        return None  # what another library defines, or a module
    path = MODULES[module]
    for node in nodes_of(path):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and node.name == name and node in tree_of(path).body:
            return path, name
        if isinstance(node, ast.ImportFrom):
            for alias in node.names:
                if (alias.asname or alias.name) == name:
                    return origin_of(node.module or "", alias.name)
    return None


@cache
def public_names() -> set[tuple[Path, str]]:
    """Return where all that users can import is defined; bases of public classes are public too."""
    found = {
        origin
        for module in PUBLIC_MODULES
        for name in exported_by(tree_of(MODULES[module])) or names_defined_in(MODULES[module])
        if (origin := origin_of(module, name))
    }
    new = set(found)
    while new:
        bases = {base for origin in new for base in bases_of(*origin)}
        new = bases - found
        found |= new
    return found


def names_defined_in(path: Path) -> list[str]:
    return [
        node.name
        for node in tree_of(path).body
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and not node.name.startswith("_")
    ]


def bases_of(path: Path, name: str) -> Iterator[tuple[Path, str]]:
    for node in tree_of(path).body:
        if isinstance(node, ast.ClassDef) and node.name == name:
            for base in node.bases:
                value = base.value if isinstance(base, ast.Subscript) else base
                if isinstance(value, ast.Name) and (origin := origin_of(module_of(path), value.id)):
                    yield origin


@cache
def definitions() -> list[Documented]:
    return [each for path in FILES for each in definitions_in(path, tree_of(path), None)]


def definitions_in(path: Path, parent: ast.AST, outer: Documented | None) -> Iterator[Documented]:
    for node in getattr(parent, "body", []):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            name = f"{outer.name}.{node.name}" if outer else node.name
            if outer is None:
                is_public = (path, node.name) in public_names()
            else:
                is_member = isinstance(outer.node, ast.ClassDef)
                is_called = not node.name.startswith("_") or node.name in {"__init__", "__getitem__", "__setitem__"}
                is_public = outer.is_public and is_member and is_called
            each = Documented(path, name, node, is_public)
            yield each
            yield from definitions_in(path, node, each)


def test_the_public_names_are_found() -> None:
    names = {each.name for each in definitions() if each.is_public}

    assert {"open_checkpoint", "save_checkpoint", "CheckpointStore", "TensorkeepError", "TensorFile.load"} <= names
    assert not {each.name for each in definitions() if each.is_public and each.path.parts[-2] == "atomic"}


def test_folders_are_small() -> None:
    counts = Counter(path.parent for path in FILES if path.name != "__init__.py" and relative(path) not in FACES)

    assert {relative(folder): n for folder, n in counts.items() if n > MAX_FILES_IN_A_FOLDER} == {}


def test_docstrings_are_a_small_part_of_the_source() -> None:
    n_lines = sum(len(lines_of(path)) for path in FILES)
    n_docstrings = sum(
        node.end_lineno - node.lineno + 1
        for path in FILES
        for node in nodes_of(path)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
    )

    assert n_docstrings / n_lines <= MAX_DOCSTRING_SHARE


def test_sections_are_only_on_what_users_import() -> None:
    inside = [each for each in definitions() if not each.is_public and relative(each.path) not in EXPLAINED]

    assert [each.place for each in inside if SECTION.search(each.docstring)] == []


def test_arguments_that_are_explained_are_those_there_are() -> None:
    wrong = {
        each.place: sorted(difference)
        for each in definitions()
        if each.is_public and each.parameters and each.section("Args")
        if (difference := (explained(each) ^ each.parameters) - {"cls"})
    }

    assert wrong == {}


def explained(each: Documented) -> set[str]:
    """Return the arguments that the help explains: for some functions, those of another as well."""
    if "All other arguments are as for" not in each.docstring:
        return each.section("Args")
    told = getattr(importlib.import_module(module_of(each.path)), each.name).__doc__
    return set(re.findall(r"^    \*{0,2}(\w+):", told.partition("Args:")[2].partition("\n\n")[0], re.MULTILINE))


def test_what_a_public_function_raises_is_documented() -> None:
    wrong = {
        each.place: sorted(missing)
        for each in definitions()
        if each.is_public and isinstance(each.node, ast.FunctionDef) and "\n" in each.docstring
        if (missing := raised_in(each.node) - each.section("Raises"))
    }

    assert wrong == {}


def raised_in(function: ast.FunctionDef) -> set[str]:
    """Return the classes of errors that a function itself raises."""
    raised = {
        node.exc.func.id
        for node in ast.walk(function)
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call) and isinstance(node.exc.func, ast.Name)
    }
    return {name for name in raised if name.endswith("Error")} - {"NotImplementedError"}


def test_only_faces_and_public_modules_list_what_they_export() -> None:
    assert [
        relative(path)
        for path in FILES
        if path.name != "__init__.py" and path.name.startswith("_") and exported_by(tree_of(path))
    ] == []


def test_turns_that_read_like_a_translation_are_rare() -> None:
    texts = [
        path.read_text(encoding="utf-8") for path in [*FILES, *(ROOT / "docs").rglob("*.md"), ROOT / "README.md"]
    ]
    found = {pattern: sum(len(re.findall(pattern, text)) for text in texts) for pattern in TRANSLATED}

    assert {pattern: n for pattern, n in found.items() if n > TRANSLATED[pattern]} == {}

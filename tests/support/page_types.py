"""Checks the types of the examples in the documentation: `python -m tests.support.page_types [PAGE]...`.

All pages with mypy and pyright takes minutes; the pages that are named are checked with pyright alone, in seconds.
The Python blocks of a page become one module, in which each line has the number that it has in the page. Functions in
examples need no annotations; all that they use of tensorkeep must fit.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

from tests.support import ROOT

OTHERS: Final = {
    "how-to/accelerate.md",
    "how-to/formats.md",
    "how-to/lightning.md",
    "how-to/skorch.md",
    "how-to/transformers.md",
}
"""Pages about libraries whose own annotations do not allow what the libraries do."""

MYPY: Final = (
    *("--strict", "--allow-untyped-defs", "--allow-untyped-calls", "--allow-subclassing-any"),
    *("--implicit-reexport", "--allow-redefinition", "--no-strict-equality", "--ignore-missing-imports"),
    *("--config-file", str(ROOT / "pyproject.toml"), "--cache-dir", str(ROOT / ".mypy_cache" / "pages")),
)
PYRIGHT: Final = {
    "typeCheckingMode": "standard",
    "pythonVersion": "3.11",
    "reportMissingImports": False,
    "reportMissingModuleSource": False,
    "reportPossiblyUnboundVariable": False,
    "reportPrivateImportUsage": False,
}


def modules(pages: Iterable[Path]) -> dict[str, str]:
    """Return for each page with Python blocks the name of its module and the text."""
    texts = {_name(page): module_of(page.read_text("utf-8")) for page in pages}
    return {name: text for name, text in texts.items() if text.strip()}


def module_of(text: str) -> str:
    """Return the Python blocks of a page, and an empty line for every other line."""
    return "".join(f"{line}\n" for line in _lines(text.split("\n")))


def _lines(lines: Iterable[str]) -> Iterator[str]:
    indent: int | None = None
    for line in lines:
        if indent is None:
            found = re.match(r"( *)```python\b", line)
            indent = len(found[1]) if found else None
            yield ""
        elif line.strip() == "```":
            indent = None
            yield ""
        else:
            yield line[indent:]


def _is_other(page: Path) -> bool:
    return any(str(page).endswith(f"docs/{other}") for other in OTHERS)


def _name(page: Path) -> str:
    return re.sub(r"\W", "_", str(page.relative_to(ROOT).with_suffix(""))) + ".py"


def main(named: Sequence[str]) -> int:
    """Run the checkers and print what they find."""
    tools = Path(sys.executable).parent
    every = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    pages = [ROOT / name for name in named] or [page for page in every if not _is_other(page)]
    with tempfile.TemporaryDirectory() as folder:
        for name, text in modules(pages).items():
            Path(folder, name).write_text(text, encoding="utf-8")
        settings = PYRIGHT | {"include": ["."], "venvPath": str(tools.parents[1]), "venv": tools.parent.name}
        Path(folder, "pyrightconfig.json").write_text(json.dumps(settings), encoding="utf-8")
        mypy = [tools / "mypy", *MYPY, *sorted(Path(folder).glob("*.py"))]
        pyright = [tools / "basedpyright", "--project", folder]
        commands = [pyright] if named else [mypy, pyright]
        return max(subprocess.run(command, cwd=ROOT, check=False).returncode for command in commands)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""Checks the types of the examples in the documentation with mypy and pyright: `python -m tests.support.page_types`.

The Python blocks of a page become one module, in which each line has the number that it has in the page. Functions in
examples need no annotations; all that they use of tensorkeep must fit.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
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
)
PYRIGHT: Final = {
    "typeCheckingMode": "standard",
    "pythonVersion": "3.11",
    "reportMissingImports": False,
    "reportMissingModuleSource": False,
    "reportPossiblyUnboundVariable": False,
    "reportPrivateImportUsage": False,
}


def modules() -> dict[str, str]:
    """Return for each page with Python blocks the name of its module and the text."""
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    texts = {_name(page): module_of(page.read_text("utf-8")) for page in pages if not _is_other(page)}
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


def main() -> int:
    """Run both checkers and print what they find."""
    tools = Path(sys.executable).parent
    with tempfile.TemporaryDirectory() as folder:
        for name, text in modules().items():
            Path(folder, name).write_text(text, encoding="utf-8")
        settings = PYRIGHT | {"include": ["."], "venvPath": str(tools.parents[1]), "venv": tools.parent.name}
        Path(folder, "pyrightconfig.json").write_text(json.dumps(settings), encoding="utf-8")
        mypy = [tools / "mypy", *MYPY, "--config-file", ROOT / "pyproject.toml", *sorted(Path(folder).glob("*.py"))]
        commands = [mypy, [tools / "basedpyright", "--project", folder]]
        return max(subprocess.run(command, cwd=ROOT, check=False).returncode for command in commands)


if __name__ == "__main__":
    sys.exit(main())

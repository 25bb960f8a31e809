"""Runs the notebook of the documentation: `python -m tests.support.run_notebook` rewrites its outputs.

Jupyter is not needed: code cells are Python, and the value of the last expression of a cell is shown as text and, if
it has `_repr_html_`, as HTML. What cells marked as pictures show is also kept as files, which pages include.
"""

from __future__ import annotations

import ast
import contextlib
import io
import json
import os
import tempfile
from collections.abc import Iterator
from typing import Any

from tests.support import ROOT

NOTEBOOK = ROOT / "docs" / "how-to" / "look.ipynb"
PICTURES = ROOT / "examples" / "look"

__all__ = ["NOTEBOOK", "PICTURES", "executed", "pictures_of"]


def executed(notebook: dict[str, Any]) -> dict[str, Any]:
    """Return a notebook with the outputs of its cells, run in an empty directory."""
    space: dict[str, Any] = {"__name__": "__main__"}
    cells = []
    with tempfile.TemporaryDirectory() as directory, contextlib.chdir(directory):
        for cell in notebook["cells"]:
            if cell["cell_type"] == "code":
                number = 1 + sum(each["cell_type"] == "code" for each in cells)
                cell = {**cell, "execution_count": number, "outputs": list(outputs_of(cell, space, number))}
            cells.append(cell)
        space.clear()  # closes files, which Windows needs before the directory can go
    return {**notebook, "cells": cells}


def outputs_of(cell: dict[str, Any], space: dict[str, Any], number: int) -> Iterator[dict[str, Any]]:
    """Run a code cell, and give what it prints and the value of its last expression."""
    tree = ast.parse("".join(cell["source"]))
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(compile(tree, f"cell {number}", "exec"), space)
        value = None if last is None else eval(compile(ast.Expression(last.value), f"cell {number}", "eval"), space)
    if printed.getvalue():
        yield {"name": "stdout", "output_type": "stream", "text": printed.getvalue().splitlines(keepends=True)}
    if value is not None:
        data = {"text/plain": repr(value).splitlines(keepends=True)}
        if hasattr(value, "_repr_html_"):
            data = {"text/html": value._repr_html_().splitlines(keepends=True), **data}
        yield {"data": data, "execution_count": number, "metadata": {}, "output_type": "execute_result"}


def pictures_of(notebook: dict[str, Any]) -> dict[str, str]:
    """Return the HTML of cells that are marked as pictures, by name of file."""
    return {
        f"{name}.html": "".join(cell["outputs"][-1]["data"]["text/html"]) + "\n"
        for cell in notebook["cells"]
        if (name := cell["metadata"].get("picture"))
    }


def main() -> None:
    notebook = executed(json.loads(NOTEBOOK.read_text(encoding="utf-8")))
    NOTEBOOK.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    os.makedirs(PICTURES, exist_ok=True)
    for name, html in pictures_of(notebook).items():
        PICTURES.joinpath(name).write_text(html, encoding="utf-8")


if __name__ == "__main__":
    main()

"""Code in the pages fits beside the navigation without scrolling."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support import ROOT

MAX_CHARACTERS = 88
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")), *sorted((ROOT / "examples").glob("*.md"))]
CODE = {"python", "py", "sh", "console", "yaml", "toml", "diff"}
BLOCK = re.compile(r"^(?P<indent> *)```(?P<language>\w*)[^\n]*\n(?P<lines>.*?)^ *```", re.MULTILINE | re.DOTALL)


def code_lines(text: str) -> list[str]:
    """Return the lines of code in a page; what a command prints is not code."""
    return [
        line.removeprefix(block["indent"])
        for block in BLOCK.finditer(text)
        if block["language"] in CODE
        for line in block["lines"].splitlines()
        if block["language"] != "console" or line.lstrip().startswith("$ ")
    ]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_code_is_narrow(page: Path) -> None:
    lines = code_lines(page.read_text(encoding="utf-8"))

    assert [line for line in lines if len(line) > MAX_CHARACTERS] == []

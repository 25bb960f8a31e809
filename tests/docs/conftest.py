"""The folder in which pages and examples are run."""

from __future__ import annotations

import re
from contextlib import chdir
from pathlib import Path

import pytest

from tests.support import ROOT

HEADING = "## Two models for the other pages"


@pytest.fixture(scope="session")
def reader_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What is in the reader's folder after First steps: a small model in one file, and one saved by transformers."""
    folder = tmp_path_factory.mktemp("reader")
    page = ROOT.joinpath("docs", "tutorial.md").read_text(encoding="utf-8")
    code = re.findall(r"```python\n(.*?)```", page.partition(HEADING)[2], re.DOTALL)[0]
    with chdir(folder):
        exec(code, {})
    return folder

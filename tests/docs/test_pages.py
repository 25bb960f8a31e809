"""Every code block of README.md, the documentation and the examples runs, in a folder such as a reader has."""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support import ROOT, SUPPORT, forks

RunPage = Callable[[Path, Path], int]

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")), *sorted((ROOT / "examples").glob("*.md"))]
LIBRARIES = {
    "accelerate.md": ["accelerate"],
    "lightning.md": ["lightning.pytorch"],
    "migrate.md": ["lightning.pytorch"],
    "skorch.md": ["skorch"],
    "transformers.md": ["transformers.trainer"],
}
"""What pages import besides torch: imported once, for them and other tests."""

FROM_NOTHING = {"README.md", "docs/tutorial.md"}
"""Pages that begin in an empty directory."""

EXECUTED = re.compile(r"^ *```(?:python|console)\b", re.MULTILINE)


@pytest.fixture(scope="session")
def run_page() -> RunPage:
    """Run a page in a process of its own, since it may change what `import safetensors` means."""
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    env = os.environ | {"PATH": path, "HF_HUB_OFFLINE": "1", "COLUMNS": "100", "NO_COLOR": "1"}

    def run(page: Path, folder: Path) -> int:
        modules = [forks.TRAINING, "sybil.parsers.markdown", *forks.COMMAND, *LIBRARIES.get(page.name, ())]
        done = forks.run(SUPPORT / "run_page.py", page, modules=modules, cwd=folder, env=env)
        assert not done.returncode, done.stderr
        return int(done.stdout.splitlines()[-1])

    return run


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_block_runs(page: Path, run_page: RunPage, reader_folder: Path, tmp_path: Path) -> None:
    n_blocks = len(EXECUTED.findall(page.read_text(encoding="utf-8")))
    if page.relative_to(ROOT).as_posix() not in FROM_NOTHING:
        shutil.copytree(reader_folder, tmp_path, dirs_exist_ok=True)

    assert run_page(page, tmp_path) == n_blocks


@pytest.mark.parametrize(
    ("page", "complaint"),
    [
        ("```python\nprint(1)\n```\n\n```text\n2\n```\n", "found:\\s+1"),
        ("```python\nraise ValueError('no')\n```\n", "ValueError: no"),
        ("```console\n$ echo one\ntwo\n```\n", "found:\\s+one"),
    ],
)
def test_a_wrong_block_is_found(page: str, complaint: str, run_page: RunPage, tmp_path: Path) -> None:
    path = tmp_path / "page.md"
    path.write_text(page, encoding="utf-8")

    with pytest.raises(AssertionError, match=complaint):
        run_page(path, tmp_path)

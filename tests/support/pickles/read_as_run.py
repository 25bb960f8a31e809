"""What many tests do: read a file, and compare all of it with what running it gives."""

from __future__ import annotations

import pathlib
from typing import Any

import torch

from tensorkeep.kinds.pickles import PickleFile, open_pickle
from tests.support.pickles.honest_files import run
from tests.support.pickles.same_value import assert_same


def assert_read_as_run(file: bytes | str, protocol: int = 2, *, theirs: Any = None) -> PickleFile:
    """Read a file, compare all of it with what running it gives or with another value, and return it."""
    data = pathlib.Path(file).read_bytes() if isinstance(file, str) else file
    theirs = run(data) if theirs is None else theirs
    opened = open_pickle(file, framework="torch")
    assert_same(opened.load_tree(), theirs, protocol=protocol)
    assert_same(opened.tree, theirs, protocol=protocol)
    return opened


def assert_has_state(file: PickleFile, state: dict[str, torch.Tensor]) -> None:
    """Demand names, order and values of a state dict."""
    assert list(file) == list(state)
    for name, tensor in state.items():
        assert torch.equal(file[name].load(), tensor.detach()), name
    assert {name: lazy.shape for name, lazy in file.items()} == {name: tuple(t.shape) for name, t in state.items()}

"""What notebooks show: small, complete, and harmless whatever the names are."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import tensorkeep
from tensorkeep.markup import Markup, element
from tests.support.notebooks import texts_of

HOSTILE = (
    "<script>alert(1)</script>",
    '" onmouseover="alert(1)',
    "</td></table></details><img src=x onerror=alert(1)>",
    "a\n\x1b[31m\u202eb\u2066\0",
    "<!--",
    "&lt;b&gt;",
    "x" * 5000,
)


@pytest.fixture
def hostile(tmp_path: Path) -> Path:
    path = tmp_path / "<b>.safetensors"
    tensorkeep.save(
        {name: np.ones(3, np.float32) for name in HOSTILE}, path, metadata={name: name for name in HOSTILE}
    )
    return path


def test_hostile_names_are_only_text(hostile: Path) -> None:
    with tensorkeep.open(hostile) as file:
        shown = texts_of(file._repr_html_())
        assert HOSTILE[0] in shown
        assert r"a\n\x1b[31m\u202eb\u2066\x00" in shown
        assert texts_of(file.select(lambda name: True)._repr_html_())
        for name in HOSTILE:
            assert texts_of(file[name]._repr_html_())


def test_results_are_shown(hostile: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.safetensors"
    tensorkeep.save({HOSTILE[0]: np.zeros(3, np.float32), "only b": np.zeros(1)}, other)
    broken = tmp_path / "broken.safetensors"
    data = bytearray(hostile.read_bytes())
    data[-1] ^= 1
    broken.write_bytes(data)

    assert f"{hostile}: whole" in texts_of(tensorkeep.verify(hostile)._repr_html_())
    assert f"{broken}: damaged" in texts_of(tensorkeep.verify(broken)._repr_html_())
    shown = texts_of(tensorkeep.diff(hostile, other)._repr_html_())
    assert {"different", HOSTILE[0], "3 of 3", "only b"} <= set(shown)
    assert texts_of(tensorkeep.diff(hostile, hostile)._repr_html_())[0] == "equal"


class Evil:
    def __reduce__(self) -> Any:
        return os.system, ("<script>",)


def test_a_scan_is_shown(tmp_path: Path) -> None:
    path = tmp_path / "evil.pt"
    torch.save({"<b>": Evil()}, path)

    shown = texts_of(tensorkeep.scan(path)._repr_html_())

    assert f"{path}: dangerous" in shown
    assert "posix.system" in shown


def test_a_store_is_shown(tmp_path: Path) -> None:
    store = tensorkeep.CheckpointStore(tmp_path / "run")
    for step in (10, 20):
        store.save(step, {"w": np.ones(3)}, metrics={"valid_loss": 1 / step})

    shown = texts_of(store._repr_html_())

    assert {"20", "10", "valid_loss = 0.05", "latest, best"} <= set(shown)


def test_100_000_tensors_give_a_small_page_at_once(tmp_path: Path) -> None:
    path = tmp_path / "many.safetensors"
    tensorkeep.save({f"layers.{place}.weight": np.ones(1, np.float32) for place in range(100_000)}, path)

    with tensorkeep.open(path) as file:
        start = time.perf_counter()
        html = file._repr_html_()
        seconds = time.perf_counter() - start

    assert "… and 99,900 more" in texts_of(html)
    assert len(html) < 100_000
    assert seconds < 5


def test_dir_is_for_people(hostile: Path) -> None:
    with tensorkeep.open(hostile) as file:
        assert {"load", "select", "metadata", "path"} <= set(dir(file))
        assert not {"_find", "_abc_impl", "checks", "unmapped"} & set(dir(file))
        assert {"dtype", "shape", "load", "cast"} <= set(dir(file[HOSTILE[0]]))
        assert not {"reader", "_entry", "tensor_to_write"} & set(dir(file[HOSTILE[0]]))


@given(text=st.text(), value=st.text())
def test_elements_escape_everything(text: str, value: str) -> None:
    html = element("span", text, title=value)

    assert isinstance(html, Markup)
    texts_of(html)
    assert element("div", html) == f"<div>{html}</div>"

"""`tensorkeep view`: what a browser waits for, and what the server takes for it."""

from __future__ import annotations

import atexit
from contextlib import ExitStack
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import ml_dtypes
import numpy as np
from playwright.sync_api import Browser

import tensorkeep
from benchmarks import inputs, limits
from benchmarks.case import AtLeast, AtMostOver, Case, Contender, Place
from tensorkeep.viewing import Viewer
from tests.support.browser import running_chromium

__all__ = ["CASES"]

_SEEN = """() => new Promise((resolve) => {
    const isShown = () => performance.getEntriesByName("shown").length;
    const look = () => (isShown() ? requestAnimationFrame(resolve) : setTimeout(look, 5));
    look();
})"""
"""Ends with the frame after the tree is drawn."""


class _Pages:
    """A browser, and viewers of many tensors and of one, whose headers are read."""

    def __init__(self, many: Path, one: Path) -> None:
        self._ended = ExitStack()
        atexit.register(self._ended.close)
        self.many, self.one = (self._ended.enter_context(Viewer(path)).url for path in (many, one))

    @cached_property
    def _browser(self) -> Browser:
        return self._ended.enter_context(running_chromium())

    def show(self, url: str) -> None:
        """Open a page, and wait until the tree is painted."""
        with self._browser.new_context() as context:
            page = context.new_page()
            page.goto(url, wait_until="commit")
            page.evaluate(_SEEN)


def _many_tensors(place: Place) -> Path:
    return inputs.tensor_file(place.folder, "F32", (2,), place.size(100_000, 1_000))


def _pages(place: Place) -> _Pages:
    return _Pages(_many_tensors(place), inputs.tensor_file(place.folder, "F32", (2,), 1))


def _weights(place: Place, name: str, n_tensors: int, factor: float) -> Path:
    """Make a file of BF16 tensors of 64 MB, normal and small as weights are, unless it exists."""
    path = place.folder / f"{name}.safetensors"
    if not path.exists():
        numbers = np.random.default_rng(0).standard_normal(place.size(2**25, 2**15), np.float32) * np.float32(0.02)
        block = (numbers * np.float32(factor)).astype(ml_dtypes.bfloat16)
        tensorkeep.save({f"layers.{place}.weight": block.copy() for place in range(n_tensors)}, path)
    inputs.read_into_cache(path)
    return path


def _one_large(place: Place) -> Path:
    path = place.folder / "large.safetensors"
    if not path.exists():
        whole = tensorkeep.load(_weights(place, "parts", 16, 1.0))
        tensorkeep.save({"w": np.concatenate(list(whole.values()))}, path)
    inputs.read_into_cache(path)
    return path


def _pair(place: Place) -> tuple[Path, Path]:
    return _weights(place, "before", 37, 1.0), _weights(place, "after", 37, 1.01)


def _answer(name: str, *paths: Path) -> bytes:
    """Open a viewer, and ask it once."""
    with Viewer(*paths) as viewer, urlopen(f"{viewer.url}api/{name}") as answer:
        content: bytes = answer.read()
    if b'"error":{' in content[-1000:]:
        raise RuntimeError(content[-1000:].decode())
    return content


def _every_answer(path: Path) -> list[int]:
    """Open a viewer, and let it list, compare and verify all tensors."""
    with Viewer(path, path) as viewer:
        return [len(urlopen(f"{viewer.url}api/{name}").read()) for name in ("tree", "compare", "verify")]


def _by_functions(path: Path) -> Any:
    with tensorkeep.open(path) as a, tensorkeep.open(path) as b:
        return list(a), tensorkeep.diff(a, b), tensorkeep.verify(path)


CASES = (
    Case(
        name="viewing/first-paint",
        title="the page of a file of 100,000 tensors, until its tree is painted",
        prepare=_pages,
        ours=Contender("tensorkeep view", lambda pages: pages.show(pages.many)),
        peers=(Contender("a file of one tensor", lambda pages: pages.show(pages.one)),),
        target=AtMostOver(1.0),
        rounds=7,
        has_memory=False,
        remark="The header is read before. The browser is Chromium without a window.",
        company="viewing",
    ),
    Case(
        name="viewing/statistics",
        title="statistics and histograms of a BF16 tensor of 1.1 GB, warm",
        prepare=_one_large,
        ours=Contender("tensorkeep view", lambda path: _answer("statistics?t=0", path)),
        peers=(Contender("reading the file by two threads", limits.read_by_two_threads),),
        target=AtLeast(0.5),
        rounds=7,
        has_memory=False,
        remark="The peer reads into fresh memory. Into a small buffer that is used again, reading takes an eighth of "
        "what the statistics take; most of that is NumPy, which counts each number by its 16 bits.",
    ),
    Case(
        name="viewing/compare",
        title="two checkpoints of 2.5 GB compared, every number different, warm",
        prepare=_pair,
        ours=Contender("tensorkeep view", lambda pair: _answer("compare", *pair)),
        peers=(Contender("tensorkeep.diff", lambda pair: tensorkeep.diff(*pair)),),
        target=AtLeast(1.0),
        rounds=5,
    ),
    Case(
        name="viewing/many",
        title="a viewer of 100,000 tensors, which lists, compares and verifies all of them",
        prepare=_many_tensors,
        ours=Contender("tensorkeep view", _every_answer),
        peers=(Contender("tensorkeep.open, diff, verify", _by_functions),),
        max_extra_nbytes=240_000_000,
        rounds=5,
        remark="A server of its own takes 60 MB more, for Python and what it imports.",
    ),
)

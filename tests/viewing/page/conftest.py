"""A real browser that looks at viewers. Each test also fails for an error on the console or a broken policy."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from tensorkeep.viewing import Viewer
from tests.support.browser import running_chromium

NO_ANSWER = "net::ERR_ABORTED"
"""How a request ends that the page itself stopped."""


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    """One browser for all tests of a file; others may want event loops of their own."""
    expect.set_options(timeout=30_000)  # a busy machine
    with running_chromium() as browser:
        yield browser


@pytest.fixture(scope="module")
def shown() -> Iterator[Callable[..., str]]:
    """Give the address of a viewer of some paths, which runs until the last test."""
    with ExitStack() as viewers:
        yield cache(lambda *paths: viewers.enter_context(Viewer(*paths)).url)


class Looker:
    """Opens pages of viewers, and keeps what goes wrong in them.

    Attributes:
        faults: Errors so far, as text.
        expected: What is in the text of errors that a test wants.
    """

    def __init__(self, browser: Browser, shown: Callable[..., str], stack: ExitStack) -> None:
        self.faults: list[str] = []
        self.expected = ""
        self._browser = browser
        self._shown = shown
        self._stack = stack

    def __call__(self, *paths: Path, at: str = "", width: int = 1280, height: int = 800, **options: Any) -> Page:
        """Open a page of what is at one path or two, at an address, and wait until it is drawn."""
        context = self._browser.new_context(viewport={"width": width, "height": height}, **options)
        self._stack.callback(context.close)
        page = context.new_page()
        page.set_default_timeout(60_000)
        page.on("console", lambda message: self._said(message.type, message.text))
        page.on("pageerror", lambda error: self.faults.append(str(error)))
        page.on("requestfailed", lambda request: self._failed(request.url, request.failure))
        page.goto(self._shown(*paths) + at)
        page.locator("#content .pane").first.wait_for()
        return page

    def _said(self, kind: str, text: str) -> None:
        if kind in {"error", "warning"} and not (self.expected and self.expected in text):
            self.faults.append(text)

    def _failed(self, url: str, failure: str | None) -> None:
        if failure != NO_ANSWER:
            self.faults.append(f"{url}: {failure}")


@pytest.fixture
def look(chromium: Browser, shown: Callable[..., str]) -> Iterator[Callable[..., Page]]:
    """Opens pages, and fails if anything went wrong in them."""
    with ExitStack() as stack:
        looker = Looker(chromium, shown, stack)
        yield looker
        assert looker.faults == []

"""A real browser: Debian's Chromium, driven by playwright, without a window and without a word to anybody."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from playwright.sync_api import Browser, sync_playwright

from tests.support import get_chromium

OPTIONS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


@contextmanager
def running_chromium() -> Iterator[Browser]:
    """Run it with an empty profile; until its end, playwright keeps an event loop in this thread."""
    binary = get_chromium.find_chromium()
    if binary is None:
        pytest.fail(f"Chromium is missing: {get_chromium.HOW}", pytrace=False)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=binary, headless=True, args=list(OPTIONS))
        yield browser
        browser.close()

"""No page of the site is wider than its window: on a phone and on a desk."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page

from tests.support import ROOT
from tests.support.browser import running_chromium

WIDTHS = (360, 1280)

TOO_WIDE = """() => {
    const width = document.documentElement.clientWidth;
    const fits = (box) => box.getBoundingClientRect().right <= width + 1;
    const scrolls = (box) => box && box !== document.body && (
        (["auto", "scroll"].includes(getComputedStyle(box).overflowX) && fits(box)) || scrolls(box.parentElement));
    const out = [...document.querySelectorAll(".md-content *, .md-header *, .md-footer *")]
        .filter((each) => each.getBoundingClientRect().width && !fits(each))
        .filter((each) => !scrolls(each.parentElement));
    return [document.documentElement.scrollWidth - width, ...out.map((each) => each.outerHTML.slice(0, 100))];
}"""
"""How many pixels the page can be scrolled to the side, and the elements that are cut off and do not scroll."""


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """The built documentation: what `make docs` has just built, or a new one."""
    built = ROOT / "site"
    sources = [path for folder in ("docs", "src") for path in (ROOT / folder).rglob("*.*") if path.suffix != ".pyc"]
    sources.append(ROOT / "mkdocs.yml")
    index = built / "index.html"
    if index.exists() and index.stat().st_mtime > max(path.stat().st_mtime for path in sources):
        return built
    mkdocs = [Path(sys.executable).with_name("mkdocs"), "build", "--strict", "--quiet", "--site-dir", tmp_path]
    subprocess.run(mkdocs, cwd=ROOT, env=os.environ | {"NO_MKDOCS_2_WARNING": "1"}, check=True)
    return tmp_path


@pytest.mark.soak
def test_no_page_is_wider_than_its_window(site: Path) -> None:
    pages = sorted(site.rglob("index.html"))
    with running_chromium() as browser:
        page = browser.new_page()
        faults = [fault for path in pages for fault in faults_of(page, path, site)]

    assert len(pages) > 80
    assert faults == []


def faults_of(page: Page, path: Path, site: Path) -> Iterator[str]:
    page.goto(path.as_uri())
    for width in WIDTHS:
        page.set_viewport_size({"width": width, "height": 800})
        excess, *elements = page.evaluate(TOO_WIDE)
        faults = elements if excess <= 0 else [f"{excess} px too wide", *elements]
        yield from (f"{path.parent.relative_to(site)} at {width} px: {fault}" for fault in faults)

"""The page of benchmarks and its plots are what the record says."""

from __future__ import annotations

from xml.etree import ElementTree as ET

import pytest

from benchmarks.cases import find_cases
from benchmarks.plot import plots
from benchmarks.record import read_record, recorded
from benchmarks.report import page
from benchmarks.results import CaseResult
from tests.support import ROOT

DOCS = ROOT / "docs"


@pytest.fixture(scope="module")
def results() -> list[CaseResult]:
    return recorded(find_cases("*"), read_record(ROOT / "benchmarks" / "record.json"))


def test_the_page_is_written_from_the_record(results: list[CaseResult]) -> None:
    assert DOCS.joinpath("benchmarks.md").read_text(encoding="utf-8") == page(results, find_cases("*"))


def test_the_plots_are_drawn_from_the_record(results: list[CaseResult]) -> None:
    drawn = plots(results)

    for name, picture in drawn.items():
        assert DOCS.joinpath("assets", name).read_text(encoding="utf-8") == picture, name
    folder = DOCS / "assets" / "benchmarks"
    assert {f"benchmarks/{path.name}" for path in folder.iterdir()} == {name for name in drawn if "/" in name}


def test_a_plot_says_in_words_what_it_shows(results: list[CaseResult]) -> None:
    for picture in plots(results).values():
        title = ET.fromstring(picture).find("{http://www.w3.org/2000/svg}title")
        assert title is not None
        assert title.text.startswith("How many times as fast as others: ")

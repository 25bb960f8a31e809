"""What the pages list is all there is: errors, dependencies, public names, links."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

import tensorkeep
from tensorkeep import errors
from tensorkeep.cli import app
from tests.support import ROOT

DOCS = ROOT / "docs"


def read(*parts: str) -> str:
    return ROOT.joinpath(*parts).read_text(encoding="utf-8")


def test_the_errors_page_has_the_tree() -> None:
    rows = re.findall(r"^\| `(\w+)` \| ((?:`\w+`(?:, )?)+) \|", read("docs", "errors.md"), re.MULTILINE)

    tree = {
        name: [base.__name__ for base in cls.__bases__ if base is not errors.TensorkeepError]
        for name, cls in vars(errors).items()
        if isinstance(cls, type) and issubclass(cls, errors.TensorkeepError) and name != "SafetensorError"
    }
    assert {name: re.findall(r"\w+", bases) for name, bases in rows} == tree


def test_the_dependencies_page_has_each_required_package_and_those_of_the_command_line() -> None:
    project = tomllib.loads(read("pyproject.toml"))["project"]
    required = [*project["dependencies"], *project["optional-dependencies"]["cli"]]

    rows = re.findall(r"^\| \[([\w-]+)\]", read("docs", "dependencies.md"), re.MULTILINE)

    assert rows == [re.match(r"[\w-]+", requirement)[0] for requirement in required]


def test_the_reference_has_every_public_name() -> None:
    pages = "".join(page.read_text(encoding="utf-8") for page in DOCS.joinpath("reference").glob("*.md"))

    described = set(re.findall(r"^::: tensorkeep\.(\w+)$", pages, re.MULTILINE))

    in_errors = {"SafetensorError", "StateError", "TensorkeepError"}
    assert set(tensorkeep.__all__) - in_errors - {"__version__"} <= described


def test_each_command_has_a_page() -> None:
    pages = "".join(page.read_text(encoding="utf-8") for page in DOCS.joinpath("how-to").glob("*.md"))

    shown = set(re.findall(r"^(?:\$ )?tensorkeep ([\w-]+)", pages, re.MULTILINE))

    assert {command.name for command in app.registered_commands} <= shown


def test_each_page_is_in_the_navigation() -> None:
    def pages_in(part: Any) -> Iterator[str]:
        if isinstance(part, str):
            yield part
        else:
            for each in part if isinstance(part, list) else part.values():
                yield from pages_in(each)

    listed = list(pages_in(yaml.safe_load(read("mkdocs.yml"))["nav"]))

    assert sorted(listed) == sorted(page.relative_to(DOCS).as_posix() for page in DOCS.rglob("*.md"))


def test_the_site_and_the_package_name_the_same_places() -> None:
    urls = tomllib.loads(read("pyproject.toml"))["project"]["urls"]
    site = dict(re.findall(r"^(site_url|repo_url): (\S+)$", read("mkdocs.yml"), re.MULTILINE))

    assert site == {"site_url": urls["Documentation"], "repo_url": urls["Repository"]}


@pytest.mark.parametrize("page", sorted(ROOT.glob("*.md")), ids=lambda page: page.name)
def test_links_of_the_repository_lead_somewhere(page: Path) -> None:
    links = re.findall(r"\]\((?!https?://)([^)#]+)", page.read_text(encoding="utf-8"))

    assert [link for link in links if not ROOT.joinpath(link).exists()] == []


def test_the_version_is_in_the_changelog() -> None:
    versions = re.findall(r"^## \[?([0-9.]+)", read("CHANGELOG.md"), re.MULTILINE)

    assert versions[0] == tensorkeep.__version__


def test_readme_says_in_words_what_its_plot_shows() -> None:
    text = " ".join(re.search(r'alt="(Bars.*?)"', read("README.md"), re.DOTALL)[1].split())
    n_peers, best, worst = re.search(r"with (\d+) peers: from (\S+) times .* to (\S+) times", text).groups()

    bars = re.findall(r": ([\d.]+)x(?:;|<)", read("docs", "assets", "benchmarks-light.svg"))

    assert [n_peers, best, worst] == [str(len(bars)), bars[0], bars[-1]]

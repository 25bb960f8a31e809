"""The workflows have no more rights than they need, run what others cannot change, and test what is claimed."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support import ROOT

WORKFLOWS = sorted(ROOT.joinpath(".github", "workflows").glob("*.yml"))
MAY = {"publish": {"id-token": "write"}, "site": {"contents": "write"}}
"""The rights of jobs that may do more than read."""

by_name = pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)


def jobs_of(path: Path) -> dict[str, Any]:
    return yaml.safe_load(path.read_text(encoding="utf-8"))["jobs"]


def steps_of(path: Path) -> Iterator[dict[str, Any]]:
    for job in jobs_of(path).values():
        yield from job.get("steps", ())


@by_name
def test_jobs_read_only_unless_they_are_listed(path: Path) -> None:
    assert yaml.safe_load(path.read_text(encoding="utf-8"))["permissions"] == {"contents": "read"}
    assert {
        name: job["permissions"] for name, job in jobs_of(path).items() if "permissions" in job
    }.items() <= MAY.items()


@by_name
def test_actions_of_others_are_pinned_by_commit(path: Path) -> None:
    used = [step["uses"] for step in steps_of(path) if "uses" in step]

    assert [each for each in used if not re.fullmatch(r"actions/[\w-]+@v\d+|[\w/-]+@[0-9a-f]{40}", each)] == []


@by_name
def test_no_text_from_outside_becomes_a_command(path: Path) -> None:
    assert [step["run"] for step in steps_of(path) if "${{ github" in step.get("run", "")] == []


def test_the_job_that_may_publish_runs_no_code_of_ours() -> None:
    steps = jobs_of(ROOT / ".github" / "workflows" / "release.yml")["publish"]["steps"]

    assert all("run" not in step for step in steps)


def test_every_version_of_python_that_is_claimed_is_tested() -> None:
    classifiers = tomllib.loads(ROOT.joinpath("pyproject.toml").read_text(encoding="utf-8"))["project"]["classifiers"]
    claimed = {found[1] for each in classifiers if (found := re.search(r":: (3\.\d+)$", each))}

    tested = jobs_of(ROOT / ".github" / "workflows" / "tests.yml")["core"]["strategy"]["matrix"]["python"]

    assert claimed <= set(tested)

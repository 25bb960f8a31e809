"""`tensorkeep view`, as people run it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import urllib3

import tensorkeep
from tensorkeep.cli import main
from tensorkeep.viewing._page import read_page
from tests.support import ROOT


@pytest.fixture
def path(tmp_path: Path) -> str:
    tensorkeep.save({"w": np.ones(3)}, tmp_path / "a.safetensors")
    return str(tmp_path / "a.safetensors")


@contextmanager
def running(*arguments: str, **variables: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    process = subprocess.Popen(
        [sys.executable, "-m", "tensorkeep", "view", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONUNBUFFERED": "1"} | variables,
    )
    try:
        line = process.stdout.readline()
        found = re.fullmatch(r"viewing at (http://\S+/[\w-]{32}/)\n", line)
        assert found, line + process.communicate()[1]
        yield process, found[1]
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_says_where_and_ends_by_itself(path: str, number: int) -> None:
    with running(path, "--no-browser") as (process, url):
        assert urllib3.request("GET", f"{url}api/tree").json()["n_tensors"] == 1

        process.send_signal(number)
        output, errors = process.communicate(timeout=10)

    assert (process.returncode, output, errors) == (0, "", "")


def test_it_opens_the_browser(path: str, tmp_path: Path) -> None:
    told = tmp_path / "told"
    browser = f"{sys.executable} -c \"import sys; open('{told}', 'w').write(sys.argv[1])\" %s"

    with running(path, BROWSER=browser) as (process, url):
        for _ in range(1000):
            if told.exists() and told.read_text():
                break
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=10)

    assert told.read_text() == url


def test_other_machines_are_warned_of(path: str) -> None:
    with running(path, "--no-browser", "--host", "0.0.0.0") as (process, _):
        process.send_signal(signal.SIGINT)

        assert "unencrypted" in process.communicate(timeout=10)[1]


def test_what_cannot_be_viewed_is_said(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["view", f"{path}.missing", "--no-browser"])
    assert "missing" in capsys.readouterr().err
    assert main(["view", path, "--no-browser", "--port", "70000"])
    assert "port" in capsys.readouterr().err


def test_without_aiohttp_the_message_says_what_to_install(path: str, tmp_path: Path) -> None:
    tmp_path.joinpath("aiohttp.py").write_text("raise ImportError('no aiohttp here')")
    search = os.pathsep.join([str(tmp_path), str(ROOT / "src")])

    done = subprocess.run(
        [sys.executable, "-m", "tensorkeep", "view", path, "--no-browser"],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": search},
        timeout=60,
    )

    assert done.returncode
    assert "pip install 'tensorkeep[view]'" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_page_is_part_of_the_package() -> None:
    page = read_page()

    assert page["index.html"].content_type == "text/html; charset=utf-8"
    scripts = {name for name in page if name.endswith(".js")}
    assert scripts
    folder = ROOT / "src" / "tensorkeep" / "viewing" / "page"
    assert {str(file.relative_to(folder)) for file in folder.rglob("*") if file.is_file()} == set(page)

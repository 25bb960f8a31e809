"""`tensorkeep scan`."""

from __future__ import annotations

import json
import os
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch

SYSTEM = f"{os.system.__module__}.system"


class Payload:
    """Runs a command where it is unpickled."""

    def __init__(self, command: str) -> None:
        self.command = command

    def __reduce__(self) -> Any:
        return os.system, (self.command,)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """One file of each verdict, and what becomes of a payload that runs."""
    torch.save({"weight": torch.randn(3, 4)}, tmp_path / "clean.pt")
    torch.save(torch.nn.Linear(3, 4), tmp_path / "unknown.pt")
    torch.save({"weight": Payload(f"touch {tmp_path}/it-ran")}, tmp_path / "dangerous.pt")
    (tmp_path / "unreadable.pt").write_bytes(b"PK\x03\x04")
    return tmp_path


@pytest.mark.parametrize(
    ("files", "code", "last_line"),
    [
        (["clean.pt"], 0, "clean: 1 file; nothing was run"),
        (["unknown.pt"], 0, "unknown: 1 file; nothing was run"),
        (["--strict", "clean.pt"], 0, "clean: 1 file; nothing was run"),
        (["--strict", "unknown.pt"], 1, "unknown: 1 file; nothing was run"),
        (["unreadable.pt"], 2, "unreadable: 1 file; nothing was run"),
        (["dangerous.pt"], 1, "dangerous: 1 file; nothing was run"),
        (["clean.pt", "unreadable.pt"], 2, "unreadable: 2 files (1 unreadable, 1 clean); nothing was run"),
        (["unreadable.pt", "dangerous.pt"], 1, "dangerous: 2 files (1 dangerous, 1 unreadable); nothing was run"),
        (
            ["--strict", "unreadable.pt", "unknown.pt"],
            1,
            "unreadable: 2 files (1 unreadable, 1 unknown); nothing was run",
        ),
        (
            ["."],
            1,
            "dangerous: 4 files (1 dangerous, 1 unreadable, 1 unknown, 1 clean); nothing was run",
        ),
    ],
)
def test_the_exit_status_is_the_answer(run: Any, folder: Path, files: list[str], code: int, last_line: str) -> None:
    done = run("scan", *files, cwd=folder)

    assert (done.returncode, done.stderr) == (code, "")
    assert done.stdout.splitlines()[-1] == last_line
    assert not (folder / "it-ran").exists()


def test_names_places_reasons_and_arguments_are_shown(run: Any, folder: Path) -> None:
    lines = run("scan", "dangerous.pt", cwd=folder).stdout.splitlines()

    assert lines[0] == "dangerous  dangerous.pt  PyTorch zip archive, 1 pickle"
    assert lines[1].split("  ")[1:] == [
        SYSTEM,
        "imported, called",
        "",
        "data.pkl, byte " + lines[1].split()[5],
        "runs commands",
    ]
    assert lines[2] == f"    with ('touch {folder}/it-ran')"


def test_what_is_missing_cannot_be_answered(run: Any, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "dangling").symlink_to("nowhere.pt")

    for name, message in {
        "missing.pt": "error: No such file or directory: missing.pt\n",
        "dangling": "error: a link to a file that does not exist (dangling): found nowhere.pt\n",
        "empty": "error: no files in the directory (empty). Check the path\n",
    }.items():
        done = run("scan", name, cwd=tmp_path)
        assert (done.returncode, done.stdout, done.stderr) == (2, "", message)


def test_a_directory_without_checkpoints(run: Any, tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("# Nothing\n")

    done = run("scan", str(tmp_path))

    assert (done.returncode, done.stdout) == (0, "nothing to scan: 0 files, 1 other file; nothing was run\n")


def test_no_control_character_of_a_file_reaches_the_terminal(run: Any, tmp_path: Path) -> None:
    evil = "\x1b[2J\x1b]0;owned\x07\u202e\r\nclean  file.pkl"
    name = f"{evil}name"
    content = b"\x80\x04" + b"".join(b"\x8c" + bytes([len(text.encode())]) + text.encode() for text in ("os", name))
    (tmp_path / "file.pkl").write_bytes(content + b"\x93" + pickle.dumps((evil,), 4)[2:-1] + b"R.")

    for options in ((), ("--json",), ("--sarif",)):
        done = run("scan", *options, "file.pkl", cwd=tmp_path)

        assert done.returncode == 1
        assert all(char == "\n" or char.isprintable() for char in done.stdout)
        assert "\nclean" not in done.stdout


def test_many_names_are_cut_and_dangerous_ones_never(run: Any, tmp_path: Path) -> None:
    names = [b"cmodule%d\nname\n0" % number for number in range(30)]
    system = [b"cos\nname%d\n0" % number for number in range(25)]
    (tmp_path / "file.pkl").write_bytes(b"\x80\x03" + b"".join(names + system) + b"N.")

    lines = run("scan", "file.pkl", cwd=tmp_path).stdout.splitlines()

    assert sum(line.startswith("  os.name") for line in lines) == 25
    assert "  and 30 more names (all with --json)" in lines


def test_json(run: Any, folder: Path) -> None:
    done = run("scan", "--json", "dangerous.pt", "clean.pt", cwd=folder)
    document = json.loads(done.stdout)

    assert done.returncode == 1
    assert document["paths"] == ["dangerous.pt", "clean.pt"]
    assert document["verdict"] == "dangerous"
    evil, clean = document["files"]
    assert [finding["name"] for finding in evil["findings"]] == [SYSTEM]
    assert clean["findings"] == []
    assert "torch._utils._rebuild_tensor_v2" in clean["known_names"]


def test_sarif(run: Any, folder: Path) -> None:
    done = run("scan", "--sarif", ".", cwd=folder)
    document = json.loads(done.stdout)

    assert done.returncode == 1
    assert document["version"] == "2.1.0"
    assert {result["ruleId"] for result in document["runs"][0]["results"]} == {"dangerous", "unreadable", "unknown"}

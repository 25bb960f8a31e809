"""What is at a destination is replaced only after a question, or with --force, and then the report says so."""

from __future__ import annotations

import json
import os
import pty
import sys
from pathlib import Path

import numpy as np
import pytest

import tensorkeep
from tensorkeep.cli import main

WRITERS: dict[str, list[str]] = {
    "convert to a file": ["convert", "new.safetensors", "old.safetensors"],
    "convert to a directory": ["convert", "new.safetensors", "old"],
    "export": ["export", "new.safetensors", "old.npz"],
    "reshard": ["reshard", "new.safetensors", "old"],
    "join": ["join", "new.safetensors", "other.safetensors", "old"],
    "merge": ["merge", "average", "new.safetensors", "new.safetensors", "-o", "old"],
    "slice": ["slice", "new.safetensors", "new", "-o", "old.npy"],
}
each_writer = pytest.mark.parametrize("arguments", WRITERS.values(), ids=WRITERS)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    old = {"old": np.zeros(3)}
    tensorkeep.save({"new": np.ones(3)}, "new.safetensors")
    tensorkeep.save({"other": np.ones(3)}, "other.safetensors")
    tensorkeep.save(old, "old.safetensors")
    tensorkeep.save_checkpoint(old, "old")
    Path("old", "config.json").write_text("{}")
    np.savez("old.npz", **old)
    np.save("old.npy", old["old"])
    return tmp_path


def files_in(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def answered(answer: str, arguments: list[str]) -> tuple[int, str]:
    """Run the command in a terminal in which somebody types; return its status and what the terminal showed."""
    ours, theirs = pty.openpty()
    os.write(ours, answer.encode())
    with pytest.MonkeyPatch.context() as patch, open(theirs) as keys, open(theirs, "w", closefd=False) as screen:
        patch.setattr(sys, "stdin", keys)
        patch.setattr(sys, "stderr", screen)
        status = main(arguments)
        screen.flush()
        shown = os.read(ours, 65536)
        while b"$" not in shown:
            screen.write("$")
            screen.flush()
            shown += os.read(ours, 65536)
    os.close(ours)
    return status, shown.decode()


@each_writer
def test_without_a_terminal_nothing_is_replaced(
    capsys: pytest.CaptureFixture[str], folder: Path, arguments: list[str]
) -> None:
    before = files_in(folder)

    assert main(arguments) == 2

    assert "--force" in capsys.readouterr().err
    assert files_in(folder) == before


@each_writer
def test_a_no_changes_nothing(folder: Path, arguments: list[str]) -> None:
    before = files_in(folder)

    status, shown = answered("\n", arguments)

    assert status == 2
    assert "Replace it? [y/N]" in shown
    assert "Nothing was written" in shown
    assert files_in(folder) == before


@each_writer
def test_a_yes_replaces(capsys: pytest.CaptureFixture[str], arguments: list[str]) -> None:
    assert answered("y\n", arguments)[0] == 0

    assert "; replaced " in capsys.readouterr().out.splitlines()[0]
    assert Path("old", "config.json").exists()


@each_writer
@pytest.mark.parametrize("option", ["--force", "--overwrite"])
def test_force_asks_nothing(capsys: pytest.CaptureFixture[str], arguments: list[str], option: str) -> None:
    assert main([*arguments, option]) == 0

    assert (
        capsys
        .readouterr()
        .out.splitlines()[0]
        .endswith(f"; replaced {'model.safetensors' if arguments[-1] == 'old' else arguments[-1]}")
    )


def test_programs_are_not_asked_and_read_what_was_replaced(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reshard", "new.safetensors", "old", "--json"]) == 2
    assert json.loads(capsys.readouterr().out)["error"]["kind"] == "DestinationExistsError"

    assert main(["reshard", "new.safetensors", "old", "--json", "--force", "--max-shard-size", "10"]) == 0
    assert json.loads(capsys.readouterr().out)["replaced"] == ["model.safetensors"]


def test_a_checkpoint_in_its_own_place_is_replaced_without_a_question(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reshard", "old", "old", "--cast", "f32"]) == 0
    assert capsys.readouterr().out.endswith("; replaced model.safetensors\n")
    assert main(["convert", "old", "elsewhere"]) == 0
    assert "replaced" not in capsys.readouterr().out


def test_in_a_bucket_too(capsys: pytest.CaptureFixture[str]) -> None:
    target = f"memory://replacing/{os.getpid()}"

    assert main(["reshard", "old", target, "--force"]) == 0
    assert "replaced" not in capsys.readouterr().out
    assert main(["reshard", "new.safetensors", target]) == 2
    capsys.readouterr()
    assert main(["reshard", "new.safetensors", target, "--force"]) == 0
    assert "; replaced model.safetensors" in capsys.readouterr().out

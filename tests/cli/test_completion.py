"""What the Tab key offers, in a real shell."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import tensorkeep
from tensorkeep.cli import main

pytestmark = pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    harmful = ("$(touch harm)", "`touch harm`", "a b", "\\$(touch harm)", "*", "-x", "--engine")
    names = ("layers.0.weight", "layers.1.weight", *harmful)
    tensorkeep.save({name: np.ones(2) for name in names}, "model.safetensors")


def offered(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], line: str, shell: str = "bash"
) -> list[str]:
    """Ask for completions as the script of a shell does."""
    monkeypatch.setenv("COMP_WORDS", line)
    monkeypatch.setenv("COMP_CWORD", str(len(line.split(" ")) - 1))
    monkeypatch.setenv("_TYPER_COMPLETE_ARGS", line)
    monkeypatch.setenv("_TENSORKEEP_COMPLETE", f"complete_{shell}")
    with pytest.raises(SystemExit):
        main([])
    return capsys.readouterr().out.split()


LINES = {
    "tensorkeep ver": ["verify"],
    "tensorkeep inspect --fl": ["--flat"],
    "tensorkeep inspect ": [],  # paths are the shell's
    "tensorkeep inspect --sort s": ["size"],
    "tensorkeep inspect --for mod": [],
    "tensorkeep inspect model.safetensors --for m": ["mlx"],
    "tensorkeep slice model.safetensors lay": ["layers.0.weight", "layers.1.weight"],
    "tensorkeep slice model.safetensors layers.1": ["layers.1.weight"],
    "tensorkeep slice missing ": [],
    "tensorkeep slice https://example.org/model.safetensors ": [],
    "tensorkeep diff model.safetensors other --select layers.0": ["layers.0.weight"],
    "tensorkeep convert model.safetensors out --drop layers.0": ["layers.0.weight"],
    "tensorkeep reshard model.safetensors out --cast bf": ["bf16"],
    "tensorkeep export model.safetensors out --to n": ["npz", "npy"],
}


@pytest.mark.parametrize(("line", "words"), LINES.items(), ids=LINES)
def test_what_is_offered(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], line: str, words: list[str]
) -> None:
    assert offered(monkeypatch, capsys, line) == words


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_names_that_a_shell_could_run_are_not_offered(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], shell: str
) -> None:
    monkeypatch.setenv("_TYPER_COMPLETE_FISH_ACTION", "get-args")

    words = " ".join(offered(monkeypatch, capsys, "tensorkeep slice model.safetensors ", shell))

    assert "layers.0.weight" in words
    assert not set(words) & set("$`\\")
    assert "touch" not in words
    assert "-" not in words, "a name that looks like an option"


def test_in_bash(tmp_path: Path) -> None:
    script = """
        set -e
        tensorkeep --install-completion >/dev/null
        . ~/.bashrc
        COMP_WORDS=(tensorkeep slice model.safetensors layers.0); COMP_CWORD=3
        _tensorkeep_completion tensorkeep
        echo "${COMPREPLY[@]}"
        complete -p tensorkeep
    """
    environment = os.environ | {
        "HOME": str(tmp_path),
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
    }

    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, env=environment, check=False)

    assert done.stderr == ""
    assert done.stdout == "layers.0.weight\ncomplete -o default -F _tensorkeep_completion tensorkeep\n"

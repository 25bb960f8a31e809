"""What all commands share: exit codes, errors in one line, pipes, colours, hostile files, start-up."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tensorkeep
from tensorkeep.cli import main

COMMAND = [sys.executable, "-m", "tensorkeep"]
ESCAPE = "\x1b"


def test_the_installed_command_and_the_module_are_one() -> None:
    script = Path(sys.executable).with_name("tensorkeep")

    for command in ([str(script)], COMMAND):
        done = subprocess.run([*command, "--version"], capture_output=True, text=True, check=True)
        assert done.stdout == f"tensorkeep {tensorkeep.__version__}\n"


@pytest.mark.parametrize("package", ["typer", "rich"])
def test_without_the_extra_the_command_says_how_to_install_it(package: str) -> None:
    code = f"import sys, runpy; sys.modules[{package!r}] = None; runpy.run_module('tensorkeep', run_name='__main__')"

    done = subprocess.run([sys.executable, "-c", code, "--version"], capture_output=True, text=True, check=False)

    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"error: the command line needs {package}")
    assert done.stderr.endswith("pip install 'tensorkeep[cli]'\n")


COMMANDS = (
    "inspect",
    "slice",
    "view",
    "verify",
    "scan",
    "convert",
    "diff",
    "reshard",
    "join",
    "edit",
    "list",
    "prune",
    "fetch",
    "serve",
    "run",
    "install-hook",
)


@pytest.mark.parametrize("arguments", [[], ["--help"], *([command, "--help"] for command in COMMANDS)])
def test_help(run: Any, arguments: list[str]) -> None:
    done = run(*arguments)

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("Usage: tensorkeep")
    assert all(command in done.stdout for command in COMMANDS if len(arguments) < 2)


@pytest.mark.parametrize("command", [[], *([command] for command in COMMANDS)])
def test_h_is_short_for_help(capsys: pytest.CaptureFixture[str], command: list[str]) -> None:
    assert main([*command, "-h"]) == 0
    short = capsys.readouterr().out
    assert main([*command, "--help"]) == 0
    assert short == capsys.readouterr().out != ""


ERRORS = {
    "no such file": ["inspect", "missing.safetensors"],
    "a directory without tensors": ["inspect", "empty"],
    "no safetensors file": ["inspect", "text"],
    "a name that is not there": ["slice", "good.safetensors", "missing"],
    "a bad index": ["slice", "good.safetensors", "a", "[0"],
    "code for an index": ["slice", "good.safetensors", "a", "__import__('os').abort()"],
    "an index out of range": ["slice", "good.safetensors", "a", "[7]"],
    "an unknown command": ["inspct"],
    "an unknown option": ["inspect", "good.safetensors", "--flatt"],
    "an option without its value": ["inspect", "good.safetensors", "--sort"],
    "a value that is no choice": ["inspect", "good.safetensors", "--sort", "colour"],
    "too few arguments": ["slice", "good.safetensors"],
    "too many arguments": ["inspect", "good.safetensors", "again"],
    "names with line ends": ["slice", "good.safetensors", "a\nb\x1b[31m[red]"],
    "a path that is not text": ["inspect", os.fsdecode(b"\xff\n")],
}


@pytest.mark.parametrize("arguments", ERRORS.values(), ids=ERRORS)
def test_errors_are_one_line_and_exit_code_2(run: Any, write_file: Any, tmp_path: Path, arguments: list[str]) -> None:
    write_file({"a": ("F32", (4,), 16)}, name="good.safetensors")
    (tmp_path / "text").write_text("this is no file of tensors")
    (tmp_path / "empty").mkdir()

    done = run(*arguments, cwd=tmp_path)

    assert (done.returncode, done.stdout) == (2, "")
    assert re.fullmatch(r"error: [^\n]+\n", done.stderr)
    assert done.stderr.removesuffix("\n").isprintable()


def test_usage_errors_say_where_help_is(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect"]) == 2
    assert capsys.readouterr().err.endswith("(see tensorkeep inspect --help)\n")


def test_control_c_exits_130_and_says_nothing(write_file: Any) -> None:
    path = write_file({f"tensor.{n}x": ("U8", (1,), 1) for n in range(20_000)})
    process = subprocess.Popen([*COMMAND, "inspect", str(path)], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stderr is not None
    with process, process.stdout as output:
        output.readline()  # it writes more than a pipe holds, so it is still at it
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=30) == 130
        assert process.stderr.read() == b""


def test_a_closed_pipe_is_no_error(write_file: Any) -> None:
    path = write_file({f"tensor.{n}x": ("U8", (1,), 1) for n in range(20_000)})
    for arguments in (["inspect", str(path)], ["inspect", "--json", str(path)]):
        process = subprocess.Popen([*COMMAND, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        assert process.stdout is not None
        assert process.stderr is not None
        with process:
            process.stdout.readline()
            process.stdout.close()
            assert process.wait(timeout=30) == 141
            assert process.stderr.read() == b""


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full to fill")
def test_a_full_disk_is_an_error_in_one_line(minilm: str) -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [*COMMAND, "inspect", minilm], stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )

    assert done.returncode == 2
    assert done.stderr == "error: [Errno 28] No space left on device\n"


HOSTILE = {
    "\x1b[31mred\x1b[0m": ("F32", (1,), 4),
    "[red]markup[/red][link=https://example.org]": ("F32", (1,), 4),
    "line\nbreak\r\x08\x07": ("F32", (1,), 4),
    "\u202egnirts\u2066": ("F32", (1,), 4),
    "\x9b31m": ("F32", (1,), 4),
    "\x7f.\x00": ("\x1b]0;title\x07", (2,), 4),
    "": ("F32", (1,), 4),
    "deep" + ".d" * 5000: ("F32", (1,), 4),
    "dims": ("F32", (1,) * 1000, 4),
    "huge": ("Q", (2**60, 15), 4),
}
SHOWN = [
    r"\x1b[31mred\x1b[0m",
    "[red]markup[/red][link=https://example.org]",
    r"line\nbreak\r\x08\x07",
    r"\u202egnirts\u2066",
    r"\x9b31m",
    r"\x7f",
    r"\x1b]0;title\x07",
]


@pytest.mark.parametrize("view", [[], ["--flat"], ["--expand"]])
def test_hostile_names_are_shown_and_not_obeyed(run: Any, write_file: Any, view: list[str]) -> None:
    path = str(write_file(HOSTILE, {"\x1b[2J": "[bold]\x1b[31m\n", "k\n" * 200: "v\r"}))

    done = run("inspect", path, *view)

    assert (done.returncode, done.stderr) == (0, "")
    assert all(line.isprintable() for line in done.stdout.split("\n"))
    assert all(name in done.stdout for name in SHOWN)
    assert r"\x1b[2J = [bold]\x1b[31m\n" in done.stdout


def test_hostile_names_in_json_are_exact_and_harmless(run: Any, write_file: Any) -> None:
    metadata = {"\x1b[2J": "\x9b[bold]\n\x7f"}

    done = run("inspect", "--json", str(write_file(HOSTILE, metadata)))

    assert all(line.isprintable() and line.isascii() for line in done.stdout.split("\n"))
    report = json.loads(done.stdout)
    assert [tensor["name"] for tensor in report["tensors"]] == list(HOSTILE)
    assert report["metadata"] == metadata


def test_hostile_names_in_slices(run: Any, write_file: Any) -> None:
    path = str(write_file(HOSTILE))

    done = run("slice", path, "\x1b[31mred\x1b[0m")
    assert (done.returncode, done.stdout) == (0, "\\x1b[31mred\\x1b[0m  F32  [1]\n[0.]\n")
    for name in ("\x7f.\0", "\x1b[31mred"):
        assert main(["slice", path, name]) == 2


def in_terminal(arguments: list[str], **variables: str) -> str:
    """Run the command in a terminal of 100 columns."""
    ours, theirs = pty.openpty()
    kept = {name: value for name, value in os.environ.items() if name not in {"NO_COLOR", "FORCE_COLOR"}}
    environment = kept | {"TERM": "xterm-256color", "COLUMNS": "100"} | variables
    process = subprocess.Popen([*COMMAND, *arguments], stdout=theirs, stderr=theirs, env=environment)
    os.close(theirs)
    chunks = []
    with os.fdopen(ours, "rb", buffering=0) as terminal, process:
        while True:
            try:
                chunk = terminal.read(65536)
            except OSError:  # Linux, when the other end is closed
                break
            if not chunk:
                break
            chunks.append(chunk)
    return b"".join(chunks).decode()


def test_terminals_get_colours_and_nothing_else_gets_them(run: Any, minilm: str) -> None:
    colourful = in_terminal(["inspect", minilm])

    assert f"{ESCAPE}[1;34membeddings{ESCAPE}[0m" in colourful
    assert re.sub(r"\x1b\[[0-9;]*m", "", colourful).replace("\r\n", "\n") == run("inspect", minilm).stdout
    assert ESCAPE not in in_terminal(["inspect", minilm], NO_COLOR="1")
    assert ESCAPE not in run("inspect", minilm, env=os.environ | {"TERM": "xterm-256color"}).stdout


def test_verdicts_are_coloured_in_terminals_only(run: Any, tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    tensorkeep.save({"a": np.ones(3)}, path)
    path.write_bytes(path.read_bytes()[:-1] + b"x")

    colourful = in_terminal(["verify", str(path)])

    assert f"{ESCAPE}[31mdata{ESCAPE}[0m" in colourful
    assert f"{ESCAPE}[31mdamaged{ESCAPE}[0m: 1 place" in colourful
    assert ESCAPE not in run("verify", str(path), env=os.environ | {"TERM": "xterm-256color"}).stdout
    assert f"{ESCAPE}[31m" not in in_terminal(["verify", str(path)], NO_COLOR="1")


def test_tables_of_differences_are_clipped_for_narrow_terminals_only(run: Any, tmp_path: Path) -> None:
    name = "encoder_" * 10 + "weight"
    for file, value in (("a", 1.0), ("b", 2.0)):
        tensorkeep.save({name: np.full(3, value), name + file: np.ones(1)}, tmp_path / file)
    arguments = ["diff", str(tmp_path / "a"), str(tmp_path / "b")]

    narrow = in_terminal(arguments, COLUMNS="80", NO_COLOR="1").replace("\r\n", "\n")
    table = re.sub(r"\x1b\[[0-9?]*[a-zA-Z]|\r", "", narrow).splitlines()
    assert max(len(line) for line in table if "encoder_" in line) <= 80
    assert any(re.fullmatch(r"encoder_.*….*ght  F64    \[3\] .* 0\.5", line) for line in table)
    assert run(*arguments).stdout.count(name) == 3


@pytest.mark.parametrize("view", [[], ["--flat"]])
def test_names_are_clipped_for_narrow_terminals_only(run: Any, write_file: Any, view: list[str]) -> None:
    name = "encoder_" * 10 + "weight"
    arguments = ["inspect", *view, str(write_file({name: ("F32", (2,), 8)}, name="f"))]

    narrow = in_terminal(arguments, COLUMNS="80", NO_COLOR="1").splitlines()
    assert any(line.startswith("encoder_encoder_") and "…" in line and "weight  " in line for line in narrow)
    assert max(map(len, narrow[1:])) <= 80
    assert name in in_terminal(arguments, COLUMNS="200", NO_COLOR="1")
    assert name in run(*arguments).stdout


def test_errors_are_red_in_terminals(minilm: str) -> None:
    assert (
        in_terminal(["inspect", "missing"]) == f"{ESCAPE}[31merror: No such file or directory: missing{ESCAPE}[0m\r\n"
    )


def test_hostile_names_in_a_terminal(write_file: Any) -> None:
    text = in_terminal(["inspect", str(write_file(HOSTILE))], COLUMNS="300")

    assert re.sub(r"\x1b\[(0|1|2|2;3|1;34|31|33|36)m", "", text).replace("\r\n", "").isprintable()
    assert "[red]markup[/red]" in text


def test_streams_that_cannot_take_all_characters(write_file: Any) -> None:
    path = str(write_file({"m.a": ("F32", (1,), 4), "m.重み": ("F32", (1,), 4)}))

    done = subprocess.run(
        [*COMMAND, "inspect", path], capture_output=True, env=os.environ | {"PYTHONIOENCODING": "ascii"}, check=True
    )

    assert b"|- a" in done.stdout
    assert b"`- \\u91cd\\u307f" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "absent"),
    [
        (["--version"], {"torch", "numpy", "blake3", "tensorkeep.tensors", "tensorkeep.checkpoint"}),
        (
            ["inspect", "PATH"],
            {"torch", "numpy", "blake3", "ml_dtypes", "rich.table", "rich.progress", "safetensors"},
        ),
        (["inspect", "--json", "PATH"], {"torch", "numpy", "tensorkeep.checkpoint"}),
        (["slice", "PATH", "pooler.dense.bias"], {"torch", "safetensors"}),
        (["verify", "PATH"], {"torch", "safetensors", "rich.progress", "ml_dtypes"}),
        (["diff", "PATH", "PATH", "--no-values"], {"torch", "safetensors", "rich.progress"}),
    ],
)
def test_a_command_brings_in_only_what_it_needs(minilm: str, arguments: list[str], absent: set[str]) -> None:
    arguments = [minilm if argument == "PATH" else argument for argument in arguments]
    program = (
        "import sys; from tensorkeep.cli import main; "
        f"assert main({arguments!r}) in (0, 2); print(*sys.modules, file=sys.stderr)"
    )

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert "tensorkeep.cli.commands.looking._inspect" in done.stderr.split()
    assert not absent & set(done.stderr.split())

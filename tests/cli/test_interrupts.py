"""Ctrl-C and progress in long work: a bar while it lasts, and nothing half done after it."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import tensorkeep
from tensorkeep.cli.terminal import reporting_interrupt
from tensorkeep.entries import TensorEntry
from tensorkeep.formats.safetensors import emit_sealed_header

COMMAND = [sys.executable, "-m", "tensorkeep"]
N_TENSORS = 48
NBYTES = 64 * 1024 * 1024


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """3 GiB of tensors that take no space on the disk, and have false digests."""
    path = tmp_path_factory.mktemp("large") / "model.safetensors"
    entries = {f"w{i:03}": TensorEntry("U8", (NBYTES,), (i * NBYTES, (i + 1) * NBYTES)) for i in range(N_TENSORS)}
    head = emit_sealed_header(entries, None, [bytes(32)] * N_TENSORS)
    path.write_bytes(head)
    os.truncate(path, len(head) + N_TENSORS * NBYTES)
    return path


def interrupt_when_shown(arguments: list[str], shown: str) -> tuple[int, str, bytes]:
    """Press Ctrl-C as soon as the progress bar shows a text; return exit code, standard error and standard output."""
    ours, theirs = pty.openpty()
    environment = os.environ | {"TERM": "xterm-256color", "COLUMNS": "100"}
    process = subprocess.Popen([*COMMAND, *arguments], stdout=subprocess.PIPE, stderr=theirs, env=environment)
    os.close(theirs)
    text = b""
    with process:
        while select.select([ours], [], [], 30)[0]:
            try:
                chunk = os.read(ours, 65536)
            except OSError:  # Linux, when the other end is closed
                break
            if not chunk:
                break
            if not re.search(shown.encode(), text) and re.search(shown.encode(), text + chunk):
                process.send_signal(signal.SIGINT)
            text += chunk
        os.close(ours)
        code = process.wait(timeout=30)
        assert process.stdout is not None
        return code, text.decode(), process.stdout.read()


def test_a_verification_that_is_interrupted(large: Path) -> None:
    code, text, output = interrupt_when_shown(["verify", str(large)], r"verifying.*/3\.2 GB")

    assert (code, output) == (130, b"")
    assert text.endswith(("\x1b[?25h", "\x1b[2K", "\r\n")), "the cursor is back and the bar is gone"
    assert "Traceback" not in text


def test_a_reshard_that_is_interrupted_leaves_nothing(large: Path, tmp_path: Path) -> None:
    target = tmp_path / "new"

    code, text, output = interrupt_when_shown(
        ["reshard", str(large), str(target), "--max-shard-size", "1GB"], r"writing.*/3\.2 GB"
    )

    assert (code, output) == (130, b"")
    assert "Traceback" not in text
    assert re.search(rf"interrupted: nothing was written to\s+{re.escape(str(target))}", text.replace("\r\n", ""))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("is_written", "words"), [(False, "nothing was written to"), (True, "look at what is in")])
def test_nothing_was_written_is_said_only_if_it_is_true(
    is_written: bool, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(b"old")

    def work() -> None:
        with reporting_interrupt(str(path)):
            if is_written:
                tensorkeep.save({"a": np.ones(1)}, path)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        work()
    assert f"interrupted: {words}" in capsys.readouterr().err


def test_a_reshard_that_is_interrupted_leaves_the_old_checkpoint(large: Path, tmp_path: Path) -> None:
    tensorkeep.save_checkpoint({f"w{i}": np.ones(100) for i in range(3)}, tmp_path, max_shard_size="1KB")
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}

    code, _, _ = interrupt_when_shown(["reshard", str(large), str(tmp_path), "--force"], r"writing.*/3\.2 GB")

    assert code == 130
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    assert tensorkeep.verify(tmp_path).is_whole


def test_no_bar_where_nobody_sees_it(tmp_path: Path) -> None:
    tensorkeep.save({"a": np.ones(1000)}, tmp_path / "model.safetensors")

    done = subprocess.run([*COMMAND, "verify", "--json", str(tmp_path)], capture_output=True, check=True)

    assert done.stderr == b""
    assert json.loads(done.stdout)["status"] == "whole"

"""A training run is killed in the middle of a save, and resumes as if nothing had happened.

Run it with `make demo`. The training program is `digits.py`, beside this file. This script runs it in separate
processes: once without a stop; once killed at a random point while it saves a random epoch; and once more, to resume
from what the dead process left. Each step is one function, and `main` runs them in order.
"""

from __future__ import annotations

import filecmp
import json
import math
import os
import random
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

import safetensors.numpy
from rich.columns import Columns
from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text
from sklearn.datasets import load_digits  # type: ignore[import-untyped]

import tensorkeep
from tensorkeep.store import CheckpointStore

PROGRAM = Path(__file__).with_name("digits.py")
OUTPUT = Path("demo-out")
UNINTERRUPTED = OUTPUT / "uninterrupted"
KILLED = OUTPUT / "killed"
N_EPOCHS = 12
N_DIGITS = 8
HEIGHT = 6
BARS = " ▁▂▃▄▅▆▇█"
LOSSES = (0.15, 2.5)
"""The losses of the lowest and highest bar, on a logarithmic scale."""

Epoch = dict[str, Any]
"""What the program prints about an epoch: `epoch`, `loss` and `accuracy`."""

console = Console(highlight=False)


def main() -> None:
    """Run every step."""
    for folder in (UNINTERRUPTED, KILLED):
        shutil.rmtree(folder, ignore_errors=True)
    OUTPUT.mkdir(exist_ok=True)
    console.print(f"\n[bold]tensorkeep {tensorkeep.__version__}[/] in a training run")

    show_data()
    uninterrupted = train_uninterrupted()
    killed_in = random.randint(4, N_EPOCHS - 3)
    first = train_until_killed(killed_in)
    show_remains(killed_in)
    second = resume(killed_in)
    compare_curves(uninterrupted, first, second)
    compare_results(uninterrupted, second)
    inspect()
    read_with_safetensors()
    console.print(
        f"\nThe program is [bold]examples/{PROGRAM.name}[/], and its checkpoints are in [bold]{OUTPUT}[/]."
        f" To list them: [bold].venv/bin/tensorkeep list {KILLED}[/]\n"
    )


def show_data() -> None:
    """Show what the network learns to recognize."""
    with timed() as clock:
        digits = load_digits()
    heading("scikit-learn's handwritten digits", clock)
    say(Columns([picture(image) for image in digits.images[:N_DIGITS]], padding=(0, 1)))


def train_uninterrupted() -> list[Epoch]:
    """Train to the end in a separate process."""
    with timed() as clock:
        status, epochs = run_program(UNINTERRUPTED)
    heading(f"Train a network for {N_EPOCHS} epochs without a stop", clock)
    if status:
        sys.exit("the training failed")
    say(
        f"It recognizes {percent(epochs[-1])} of the held-out digits. Saved after each epoch: model, optimizer,"
        " schedule, and the state of every random generator"
    )
    return epochs


def train_until_killed(killed_in: int) -> list[Epoch]:
    """Train the same network again, until the process is killed while it saves an epoch."""
    with timed() as clock:
        status, epochs = run_program(KILLED, "--die-in", str(killed_in))
    heading(f"Train it again, and kill the process while it saves epoch {killed_in}", clock)
    if status != -signal.SIGKILL:
        sys.exit("the process was not killed")
    say(f"killed by SIGKILL after {len(epochs)} epochs, with no chance to clean up")
    return epochs


def show_remains(killed_in: int) -> None:
    """Show that the interrupted save does not count as a checkpoint, and that the earlier ones are intact."""
    with timed() as clock:
        store = CheckpointStore(KILLED)
        latest = store.latest()
    heading("See what is left", clock)
    partial = [path for path in Path(store.path_of(killed_in)).rglob("*") if path.is_file()]
    say(f"{store.path_of(killed_in)}: no index, so its {counted(len(partial), 'file')} do not count")
    show_command(run_tensorkeep("list", str(KILLED)), "list", str(KILLED))
    if latest != killed_in - 1:
        sys.exit("the partial step counts as complete, or the step before it is lost")


def resume(killed_in: int) -> list[Epoch]:
    """Start the program again: it finds the last complete step by itself."""
    with timed() as clock:
        status, epochs = run_program(KILLED)
    heading("Start it again in a new process", clock)
    if status or epochs[0]["epoch"] != killed_in:
        sys.exit("the run did not resume where it was killed")
    say(f"It restored epoch {killed_in - 1}, trained epoch {killed_in} again, and continued to the end")
    return epochs


def compare_curves(uninterrupted: list[Epoch], first: list[Epoch], second: list[Epoch]) -> None:
    """Show the losses of both runs side by side."""
    lost, kept = first[-1], first[:-1]
    styles = ["blue"] * len(kept) + ["green"] * len(second)
    console.print()
    say(
        Columns(
            [
                chart("loss, uninterrupted", uninterrupted, ["blue"] * len(uninterrupted)),
                chart("loss, killed and resumed", [*kept, *second], styles),
            ],
            padding=(0, 4),
        )
    )
    if [*kept, *second] != uninterrupted or lost != second[0]:
        sys.exit("the losses differ")
    say(Text("all losses are equal, to the last bit", style="dim"))


def compare_results(uninterrupted: list[Epoch], second: list[Epoch]) -> None:
    """Compare the results of both runs, byte by byte."""
    ends = [Path(CheckpointStore(folder).path_of(N_EPOCHS)) for folder in (UNINTERRUPTED, KILLED)]
    with timed() as clock, tensorkeep.open(ends[0]) as one, tensorkeep.open(ends[1]) as other:
        n_equal = sum(one[name].load().tobytes() == other[name].load().tobytes() for name in one)
        files = sorted(path.name for path in ends[0].glob("*.safetensors"))
        same, _, _ = filecmp.cmpfiles(ends[0], ends[1], files, shallow=False)
        n_tensors = len(one)
    heading("Compare the results of both runs", clock)
    table = Table("", "uninterrupted", "killed and resumed", box=None, padding=(0, 2, 0, 0))
    table.add_row("accuracy", percent(uninterrupted[-1]), percent(second[-1]))
    table.add_row("last loss", *(repr(epochs[-1]["loss"]) for epochs in (uninterrupted, second)))
    say(table)
    say(f"tensors whose bytes are identical: {n_equal} of {n_tensors}")
    say(f"files whose bytes are identical: {len(same)} of {len(files)}")
    if n_equal != n_tensors or same != files:
        sys.exit("the runs differ")


def inspect() -> None:
    """Inspect and verify the last checkpoint from the command line."""
    path = CheckpointStore(KILLED).path_of(N_EPOCHS)
    for title, command in (("Look inside the last checkpoint", "inspect"), ("Verify every byte", "verify")):
        with timed() as clock:
            done = run_tensorkeep(command, path)
        heading(title, clock)
        show_command(done, command, path)


def read_with_safetensors() -> None:
    """Read the weights with the safetensors package, which knows nothing about training states."""
    folder = Path(CheckpointStore(KILLED).path_of(N_EPOCHS))
    with timed() as clock:
        shards = [safetensors.numpy.load_file(path) for path in sorted(folder.glob("*.safetensors"))]
        weights = {name: array for shard in shards for name, array in shard.items() if name.startswith("model.")}
    heading("Read the weights with the safetensors package", clock)
    say(", ".join(f"{name} {list(array.shape)}" for name, array in sorted(weights.items())))


def run_program(folder: Path, *options: str) -> tuple[int, list[Epoch]]:
    """Train in a separate process; return its status and what it printed about each epoch."""
    command = [sys.executable, str(PROGRAM), str(folder), *options]
    with console.status("training ..."):
        done = subprocess.run(command, stdout=subprocess.PIPE, encoding="utf-8")
    return done.returncode, [json.loads(line) for line in done.stdout.splitlines()]


def run_tensorkeep(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a tensorkeep command in a separate process."""
    look = {"COLUMNS": str(console.width - 2)} | ({"FORCE_COLOR": "1"} if console.is_terminal else {})
    command = [sys.executable, "-m", "tensorkeep", *arguments]
    return subprocess.run(command, env=os.environ | look, stdout=subprocess.PIPE, encoding="utf-8")


def show_command(done: subprocess.CompletedProcess[str], *arguments: str) -> None:
    """Print a command line and its output."""
    say(Text(f"$ tensorkeep {' '.join(arguments)}", style="dim"))
    say(done.stdout.rstrip())
    if done.returncode:
        sys.exit(f"tensorkeep {arguments[0]} failed")


def picture(image: Any) -> Text:
    """Draw a digit, two rows of pixels per line."""
    text = Text()
    for upper, lower in zip(image[::2], image[1::2], strict=True):
        for above, below in zip(upper, lower, strict=True):
            text.append("▀", style=f"{gray(above)} on {gray(below)}") if console.is_terminal else text.append(
                " ░▒▓█"[math.ceil((above + below) / 8)]
            )
        text.append("\n")
    return text


def gray(value: float) -> str:
    """Return the shade of a pixel from 0 to 16."""
    shade = round(value / 16 * 255)
    return f"rgb({shade},{shade},{shade})"


def chart(title: str, epochs: Sequence[Epoch], styles: Sequence[str]) -> Text:
    """Draw the loss of each epoch as a bar."""
    low, high = map(math.log, LOSSES)
    levels = [(math.log(epoch["loss"]) - low) / (high - low) * HEIGHT * 8 for epoch in epochs]
    text = Text(f"{title}\n", style="bold")
    for row in reversed(range(HEIGHT)):
        for level, style in zip(levels, styles, strict=True):
            text.append(BARS[max(0, min(8, round(level) - 8 * row))] * 2 + " ", style=f"not bold {style}")
        text.append("\n")
    text.append("".join(f"{epoch['epoch']:<3}" for epoch in epochs), style="not bold dim")
    return text


def percent(epoch: Epoch) -> str:
    """Return the accuracy after an epoch."""
    return f"{epoch['accuracy']:.1%}"


def counted(number: int, noun: str) -> str:
    """Return a number with its noun."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


@dataclass
class Clock:
    """How long something took, in seconds."""

    seconds: float = 0.0

    def __str__(self) -> str:
        """Return the time in ms or s."""
        return f"{self.seconds * 1e3:,.1f} ms" if self.seconds < 1 else f"{self.seconds:,.1f} s"


@contextmanager
def timed() -> Iterator[Clock]:
    """Measure the block."""
    clock = Clock()
    began = perf_counter()
    yield clock
    clock.seconds = perf_counter() - began


def heading(title: str, clock: Clock) -> None:
    """Print a title, with the time at the right."""
    line = Table.grid(expand=True)
    line.add_column()
    line.add_column(justify="right", no_wrap=True)
    line.add_row(Text(title, style="bold cyan"), Text(str(clock), style="green"))
    console.print()
    console.print(line)


def say(what: str | RenderableType) -> None:
    """Print below a heading."""
    console.print(Padding(Text.from_ansi(what) if isinstance(what, str) else what, (0, 0, 0, 2)))


if __name__ == "__main__":
    main()

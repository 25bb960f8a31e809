"""A program that saves models and checkpoints on disks that are too small, for `test_hf_killed`.

`small_disk_for_transformers.py FOLDER`, in a mount namespace of its own: mounts file systems of ever more room over
FOLDER, and saves on each over an older save. Prints one line of JSON per failed save.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
import transformers

from tensorkeep.errors import TransportError
from tensorkeep.integrations.transformers import from_pretrained, get_last_checkpoint, save_pretrained
from tests.support.integrations.transformers.tiny_trainers import gpt2, trainer

STEP_NBYTES = 450_000


@contextmanager
def disk(folder: Path, nbytes: int) -> Iterator[None]:
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={nbytes}", "tmpfs", folder], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", folder], check=True)


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def attempts(what: str, folder: Path, nbytes: int, save: Callable[[Path, int], None]) -> None:
    """Save twice with ever more room, until there is enough for the second."""
    while True:
        with disk(folder, nbytes):
            save(folder, 1)
            before = contents(folder)
            try:
                save(folder, 2)
            except TransportError as error:
                now = contents(folder)
                print(
                    json.dumps({"what": what, "errno": error.errno, "as before": now == before, "said": str(error)})
                )
                read(folder)
            else:
                read(folder)
                return
        nbytes += STEP_NBYTES


def save_model(folder: Path, number: int) -> None:
    save_pretrained(gpt2(n_embd=96, seed=number), folder, max_shard_size="300kB")


def save_checkpoint(folder: Path, number: int) -> None:
    settings = {"save_steps": 1, "max_steps": number, "save_total_limit": 1}
    trainer(folder, model=gpt2(n_embd=96), **settings).train(resume_from_checkpoint=number > 1)


def read(folder: Path) -> None:
    path = get_last_checkpoint(folder) or folder
    from_pretrained(transformers.AutoModelForCausalLM, path, verify="require")
    transformers.AutoModelForCausalLM.from_pretrained(path)


if __name__ == "__main__":
    torch.set_num_threads(1)
    attempts("model", Path(sys.argv[1]), 1_040_000, save_model)
    attempts("checkpoint", Path(sys.argv[1]), 3_000_000, save_checkpoint)

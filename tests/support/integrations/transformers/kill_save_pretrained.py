"""Kills saves of a model over an older one: `kill_save_pretrained.py DIRECTORY TIMES SEED`. Prints the outcome."""

from __future__ import annotations

import gc
import itertools
import sys
from pathlib import Path

import torch
import transformers

from tensorkeep.integrations.transformers import from_pretrained, save_pretrained
from tests.support.integrations.transformers.tiny_trainers import gpt2
from tests.support.kill_at_random import Ready, kill_at_random


def save(directory: Path, number: int) -> None:
    """Save a model all of whose weights, and an entry of its configuration, are a number; in more or fewer shards."""
    model = gpt2(n_embd=128, number=number)
    for parameter in model.parameters():
        torch.nn.init.constant_(parameter, number)
    save_pretrained(model, directory, max_shard_size=(500_000, 1_000_000)[number % 2])


def train(directory: Path, ready: Ready) -> None:
    number = look(directory)
    ready()
    for following in itertools.count(number + 1):
        save(directory, following)


def look(directory: Path) -> int:
    """Load with tensorkeep, then with transformers alone, and return the number that all of it is."""
    numbers = set()
    for load in (
        lambda cls: from_pretrained(cls, directory, verify="require"),
        lambda cls: cls.from_pretrained(directory),
    ):
        model = load(transformers.GPT2LMHeadModel)
        numbers |= {
            model.config.number,
            *(float(number) for weight in model.state_dict().values() for number in weight.unique()),
        }
    assert len(numbers) == 1, f"a mixture of {sorted(numbers)}"
    listed = {path.name for path in directory.iterdir() if "-of-" in path.name}
    assert {int(name[-17:-12]) for name in listed} == {len(listed)}, f"shards of another save: {sorted(listed)}"
    return int(numbers.pop())


if __name__ == "__main__":
    torch.set_num_threads(1)
    gc.freeze()  # what was imported, which every run would look through
    report = kill_at_random(
        train,
        look,
        Path(sys.argv[1]),
        first=lambda directory: save(directory, 1),
        times=int(sys.argv[2]),
        seed=int(sys.argv[3]),
        span_s=0.15,
    )
    print(*report[:3], report.progress[-1])

"""A run of two processes on the CPU, for `test_accelerate_processes`: `torchrun two_processes.py FOLDER PART`.

Each process writes what it saw to `FOLDER/PART_RANK.json`.
"""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
from accelerate import PartialState

from tensorkeep.checkpoint import verify_folder
from tensorkeep.errors import TensorkeepError
from tensorkeep.integrations.accelerate import _processes as _accelerate_processes
from tests.support.integrations.accelerate.runs import NoData, Run, make_run, train

SAVE_AFTER = (1, 1)
"""Epoch, and batch of it: each process sees half of the batches."""


def make(seed: int, *, seedable: bool = True) -> Run:
    """Make a run in which each process has chance of its own."""
    run = make_run(seed, seedable=seedable)
    if not run.accelerator.is_main_process:
        torch.manual_seed(100 + seed)
    return run


def first(folder: Path) -> dict[str, Any]:
    """Train without a stop, then again up to the save; and with loaders whose order is kept by a generator."""
    whole = train(make(0), range(3))
    begun = train(make(0), range(3), save_after=SAVE_AFTER, path=folder / "amid")
    shuffled = train(make(0, seedable=False), range(3))
    run = make(0, seedable=False)
    train(run, range(1))
    run.accelerator.save_state(folder / "between")
    run.accelerator.save_state(f"local://{folder}/bucket")
    return {"whole": whole, "begun": begun, "shuffled": shuffled, "failures": list(failures(folder, run))}


def failures(folder: Path, run: Run) -> Iterator[str]:
    """Give what this process says of each thing that fails in one of them."""
    accelerator = run.accelerator
    before = {path.name: path.read_bytes() for path in (folder / "between").iterdir()}
    for failing in (0, 1):

        def fail(models: list[Any], weights: list[Any], path: str, failing: int = failing) -> None:
            if accelerator.process_index == failing:
                raise ZeroDivisionError(f"in {failing}")

        handle = accelerator.register_save_state_pre_hook(fail)
        yield said(lambda: accelerator.save_state(folder / "between"))
        handle.remove()
    if accelerator.is_main_process:
        accelerator.register_for_checkpointing(NoData())
    yield said(lambda: accelerator.save_state(folder / "between"))
    yield said(lambda: accelerator.save_state(folder / "between" / "model.safetensors"))
    yield said(lambda: accelerator.save_model(run.model, folder / "between" / "model.safetensors"))
    yield said(lambda: accelerator.load_state(folder / "missing"))
    accelerator.wait_for_everyone()
    assert {path.name: path.read_bytes() for path in (folder / "between").iterdir()} == before


def said(action: Callable[[], object]) -> str:
    try:
        action()
    except (TensorkeepError, ZeroDivisionError) as error:
        return " ".join([f"{type(error).__name__}: {error}", *getattr(error, "__notes__", [])])
    return "nothing"


def second(folder: Path) -> dict[str, Any]:
    """Go on from what the other processes saved."""
    assert verify_folder(folder / "amid") == []
    run = make(5)
    run.accelerator.load_state(folder / "amid")
    rest = train(run, range(SAVE_AFTER[0], 3), skip=SAVE_AFTER[1] + 1)
    run.accelerator.save_model(run.model, folder / "model")
    run = make(5, seedable=False)
    run.accelerator.load_state(folder / "between")
    shuffled = train(run, range(1, 3))
    run = make(6, seedable=False)
    run.accelerator.load_state(f"local://{folder}/bucket")
    assert train(run, range(1, 3)) == shuffled
    return {"rest": rest, "shuffled": shuffled, "alone": alone(folder, run.accelerator)}


def alone(folder: Path, accelerator: Any) -> str:
    """Save in the main process only, as a program may do that was written for accelerate, and wait for the other."""
    _accelerate_processes._PATIENCE_S = 0.1
    _accelerate_processes._TIMEOUT = timedelta(seconds=1)
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        failure = said(lambda: accelerator.save_state(folder / "amid")) if accelerator.is_main_process else ""
    accelerator.wait_for_everyone()
    return " ".join([*(str(warning.message) for warning in warned), failure])


def main(folder: Path, part: str) -> None:
    """Do one part, and write what came of it."""
    found = {"first": first, "second": second}[part](folder)
    (folder / f"{part}_{PartialState().process_index}.json").write_text(json.dumps(found))
    PartialState().destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])

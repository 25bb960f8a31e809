"""`tensorkeep lora add` and `extract`: adapters and their base models."""

from __future__ import annotations

from functools import partial
from typing import Annotated

import typer

import tensorkeep
from tensorkeep.cli.commands.merging._merged import refusing_numbers, write_merged
from tensorkeep.cli.inputs import AsJson, BaseModel, Force, KeyOptions, Output, Saving, open_any
from tensorkeep.cli.reports import Extracted
from tensorkeep.cli.terminal import Writing, show_result


def add_lora(
    base: BaseModel,
    adapter: Annotated[
        str, typer.Argument(metavar="ADAPTER", help="A directory that peft wrote, or its file.", show_default=False)
    ],
    *,
    settings: Annotated[
        str | None,
        typer.Option("--settings", metavar="FILE", help="An adapter_config.json. Default: the one beside ADAPTER."),
    ] = None,
    saving: Saving,
) -> None:
    """Add a LoRA adapter to its base model.

    If a tensor of the adapter has no place in the base model, nothing is written. Whenever this is stopped, the
    directory holds the new checkpoint or what it held before.
    """
    write_merged(
        partial(tensorkeep.merging.add_lora, settings=settings),
        [base, adapter],
        saving,
    )


def extract_lora(
    base: BaseModel,
    tuned: Annotated[str, typer.Argument(metavar="TUNED", help="The model after training.", show_default=False)],
    *,
    output: Output,
    rank: Annotated[int, typer.Option("--rank", metavar="N", help="The rank of the factors.")],
    layers: Annotated[
        list[str] | None,
        typer.Option(
            "--layers", metavar="GLOB", help="Only weights whose full names match; others are stored whole."
        ),
    ] = None,
    fan_in_fan_out: Annotated[
        bool, typer.Option("--fan-in-fan-out", help="Weights are (inputs, outputs), as in GPT-2.")
    ] = False,
    base_model: Annotated[
        str | None, typer.Option("--base-model", metavar="NAME", help="What the settings say the base model is.")
    ] = None,
    seed: Annotated[int, typer.Option("--seed", metavar="N", help="Equal seeds give equal files.")] = 0,
    force: Force = False,
    as_json: AsJson = False,
    key: KeyOptions,
) -> None:
    """Write what training changed as a LoRA adapter.

    Each matrix that changed gets the two factors that are nearest to its change; the error says which share of the
    change they lack. Everything else that changed is stored whole. peft and 'tensorkeep lora add' read the adapter.
    """
    keys = key.keys()
    with open_any(base, keys) as before, open_any(tuned, keys) as after:
        write = partial(
            tensorkeep.merging.extract_lora,
            before,
            after,
            output,
            rank=rank,
            layers=layers,
            fan_in_fan_out=fan_in_fan_out,
            base_model=base_model,
            seed=seed,
        )
        writing = Writing(output, force=force, asks=not as_json)
        with refusing_numbers():
            extracted = writing.run_shown("extracting", write)
    show_result(Extracted(output, extracted, writing.seconds, writing.replaced), as_json=as_json)

"""The names of all commands, in the groups and the order in which the help shows them.

A new command is a new file with one function, named here. All command files are imported at the start, so they must
import nothing slow: use names of `tensorkeep`, which are resolved on first use. Options that several commands share
are groups in `cli/inputs/_grouped.py`, such as `Saving`: one parameter of the function, several options for people.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from tensorkeep.cli.commands.checking import check, diff, scan, verify
from tensorkeep.cli.commands.looking import inspect, slice_tensor, view
from tensorkeep.cli.commands.merging import (
    add_lora,
    average,
    dare,
    dare_ties,
    ema,
    extract_lora,
    slerp,
    task_arithmetic,
    ties,
)
from tensorkeep.cli.commands.programs import AS_TYPED, install_hook, run
from tensorkeep.cli.commands.sharing import fetch, push, serve
from tensorkeep.cli.commands.signing import keygen, sign
from tensorkeep.cli.commands.stores import list_steps, prune
from tensorkeep.cli.commands.transforming import (
    drop_layers,
    relabel,
    sparsify,
    split_experts,
    stack_experts,
    vocabulary,
)
from tensorkeep.cli.commands.writing import add_block_digests, convert, edit, export, join, patch, reshard


class Command(NamedTuple):
    """A command: its name, its function, and how its arguments are parsed if not as usual."""

    name: str
    function: Callable[..., object]
    parsing: dict[str, Any] | None = None

    @property
    def summary(self) -> str:
        """What it does, in one sentence."""
        return (self.function.__doc__ or "").partition("\n")[0]


GROUPS: Final[dict[str, list[Command]]] = {
    "Look inside": [Command("inspect", inspect), Command("slice", slice_tensor), Command("view", view)],
    "Check": [
        Command("verify", verify),
        Command("scan", scan),
        Command("check", check),
        Command("diff", diff),
    ],
    "Write": [
        Command("convert", convert),
        Command("export", export),
        Command("reshard", reshard),
        Command("join", join),
        Command("edit", edit),
        Command("add-block-digests", add_block_digests),
        Command("patch", patch),
    ],
    "Compute models": [
        Command("merge average", average),
        Command("merge ema", ema),
        Command("merge slerp", slerp),
        Command("merge task-arithmetic", task_arithmetic),
        Command("merge ties", ties),
        Command("merge dare", dare),
        Command("merge dare-ties", dare_ties),
        Command("lora add", add_lora),
        Command("lora extract", extract_lora),
        Command("transform stack-experts", stack_experts),
        Command("transform split-experts", split_experts),
        Command("transform vocabulary", vocabulary),
        Command("transform drop-layers", drop_layers),
        Command("transform sparsify", sparsify),
        Command("transform relabel", relabel),
    ],
    "Steps of a run": [Command("list", list_steps), Command("prune", prune)],
    "Other machines": [Command("fetch", fetch), Command("push", push), Command("serve", serve)],
    "Sign": [Command("keygen", keygen), Command("sign", sign)],
    "Programs that import safetensors": [Command("run", run, AS_TYPED), Command("install-hook", install_hook)],
}
"""Title of each group to its commands; names of two words are a command's own commands."""

FAMILIES: Final = {
    "merge": "Compute one model from several, number by number.",
    "transform": "Change the form of a model's tensors.",
    "lora": "Add LoRA adapters to their base models, and extract them.",
}
"""First word of names of two words, and what these commands do."""

"""File names of skorch's callbacks: a directory, a prefix, and a template with fields such as the epoch."""

from __future__ import annotations

import glob
import os
from collections.abc import Sequence
from string import Formatter
from typing import Any, Final

import msgspec

CHECKPOINT: Final = "checkpoint"
"""The part `f_checkpoint`: one file with all parts."""

HISTORY: Final = "history"
"""The part `f_history`: the history of the training."""

TRAINING: Final = "training"
"""The part `f_training`: everything else that a run needs to continue."""

_SUFFIX: Final = ".safetensors"
_OLDER_SUFFIX: Final = ".pt"


class DefaultName(str):
    """A default name: its part is left out if the net lacks it, or if one file has everything."""

    __slots__ = ()


PARAMS_NAME: Final = DefaultName("params.safetensors")
OPTIMIZER_NAME: Final = DefaultName("optimizer.safetensors")
CRITERION_NAME: Final = DefaultName("criterion.safetensors")
HISTORY_NAME: Final = DefaultName("history.json")
TRAINING_NAME: Final = DefaultName("training.safetensors")


class FileName(msgspec.Struct, frozen=True):
    """The name of the file for a part.

    Attributes:
        directory: Empty for the current one.
        prefix: The start of the name.
        template: The rest, with fields such as `{last_epoch[epoch]}`.
        is_default: Whether the user did not choose this name.
        is_literal: Whether braces are just braces.
    """

    directory: str
    prefix: str
    template: str
    is_default: bool = False
    is_literal: bool = False

    @property
    def has_fields(self) -> bool:
        """Whether the name depends on the epoch or the net."""
        return not self.is_literal and any(field is not None for _, field, _, _ in Formatter().parse(self.template))

    @property
    def shown(self) -> str:
        """The path with its fields, for messages."""
        return os.path.join(self.directory, self.prefix + self.template)

    def path(self, net: Any, history: Sequence[Any], row: int) -> str:
        """Return the path with fields filled in from a row of the history."""
        name = self.template
        if self.has_fields:
            epoch = history[row]
            name = name.format(net=net, last_epoch=epoch, last_batch=epoch["batches"][-1])
        elif not self.is_literal:
            name = name.format()
        return os.path.join(self.directory, self.prefix + name)

    def found(self) -> list[str]:
        """Return the paths of existing files, with any values in the fields."""
        if self.is_literal:
            return [self.shown] if os.path.lexists(self.shown) else []
        pattern = "".join(
            glob.escape(text) + ("" if field is None else "*")
            for text, field, _, _ in Formatter().parse(self.template)
        )
        return glob.glob(os.path.join(glob.escape(self.directory), glob.escape(self.prefix) + pattern))

    def older(self) -> FileName:
        """Return the default name of skorch's own callback for the same part."""
        return msgspec.structs.replace(self, template=self.template.removesuffix(_SUFFIX) + _OLDER_SUFFIX)


def argument_of(part: str) -> str:
    """Return the argument for a part."""
    return "f_params" if part == "module" else f"f_{part}"


def part_of(argument: str, caller: str) -> str:
    """Return the part for an argument such as `f_params`."""
    if not argument.startswith("f_"):
        raise TypeError(f"{caller} got an unexpected argument {argument!r}, did you mean 'f_{argument}'?")
    return "module" if argument == "f_params" else argument.removeprefix("f_")

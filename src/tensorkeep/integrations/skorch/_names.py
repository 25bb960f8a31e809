"""Names of files as skorch's callbacks have them: with a directory, a prefix, and fields such as the epoch."""

from __future__ import annotations

import glob
import os
from collections.abc import Sequence
from string import Formatter
from typing import Any, Final

import msgspec

CHECKPOINT: Final = "checkpoint"
"""What the f_ arguments call one file with all parts."""

HISTORY: Final = "history"
"""What they call the history of the training."""

TRAINING: Final = "training"
"""What they call all else that a run needs to go on."""

_SUFFIX: Final = ".safetensors"
_OLDER_SUFFIX: Final = ".pt"


class DefaultName(str):
    """A name that nobody asked for, so that its part may be left out: where there is none, or one file has all."""

    __slots__ = ()


PARAMS_NAME: Final = DefaultName("params.safetensors")
OPTIMIZER_NAME: Final = DefaultName("optimizer.safetensors")
CRITERION_NAME: Final = DefaultName("criterion.safetensors")
HISTORY_NAME: Final = DefaultName("history.json")
TRAINING_NAME: Final = DefaultName("training.safetensors")


class FileName(msgspec.Struct, frozen=True):
    """Where a part goes.

    Attributes:
        directory: Empty for the current one.
        prefix: What the name begins with.
        template: The rest; fields such as `{last_epoch[epoch]}` are filled in.
        is_default: Whether nobody asked for this name.
        is_literal: Whether braces are only braces.
    """

    directory: str
    prefix: str
    template: str
    is_default: bool = False
    is_literal: bool = False

    @property
    def has_fields(self) -> bool:
        """Whether the name is another one in another epoch."""
        return not self.is_literal and any(field is not None for _, field, _, _ in Formatter().parse(self.template))

    @property
    def shown(self) -> str:
        """The path with its fields, for messages."""
        return os.path.join(self.directory, self.prefix + self.template)

    def path(self, net: Any, history: Sequence[Any], row: int) -> str:
        """Return the path, with the fields filled in."""
        name = self.template
        if self.has_fields:
            epoch = history[row]
            name = name.format(net=net, last_epoch=epoch, last_batch=epoch["batches"][-1])
        elif not self.is_literal:
            name = name.format()
        return os.path.join(self.directory, self.prefix + name)

    def found(self) -> list[str]:
        """Return the paths of the files that are there, whatever stands in the fields of the name."""
        if self.is_literal:
            return [self.shown] if os.path.lexists(self.shown) else []
        pattern = "".join(
            glob.escape(text) + ("" if field is None else "*")
            for text, field, _, _ in Formatter().parse(self.template)
        )
        return glob.glob(os.path.join(glob.escape(self.directory), glob.escape(self.prefix) + pattern))

    def older(self) -> FileName:
        """Return the name that skorch's own callback has where this one has its default."""
        return msgspec.structs.replace(self, template=self.template.removesuffix(_SUFFIX) + _OLDER_SUFFIX)


def argument_of(part: str) -> str:
    """Return the argument that is for a part."""
    return "f_params" if part == "module" else f"f_{part}"


def part_of(argument: str, caller: str) -> str:
    """Return the name of the part that an argument such as `f_params` is for."""
    if not argument.startswith("f_"):
        raise TypeError(f"{caller} got an unexpected argument {argument!r}, did you mean 'f_{argument}'?")
    return "module" if argument == "f_params" else argument.removeprefix("f_")

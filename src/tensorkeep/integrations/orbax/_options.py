"""`CheckpointManagerOptions`, and orbax's options as these."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Container
from typing import Any, Final, Literal

import msgspec

from tensorkeep.errors import UnsupportedError

BEST: Final = "best_fn"
"""Name of the metric that `best_fn` gives."""

_WITHOUT_EFFECT: Final = frozenset({
    "async_options",
    "atomicity_options",
    "cleanup_tmp_directories",
    "create",
    "enable_background_delete",
    "enable_per_process_directory_creation",
    "enable_should_save_is_saving_in_progress_check",
    "file_options",
    "keep_checkpoints_without_metrics",
    "lightweight_initialize",
    "multiprocessing_options",
    "num_deletion_threads",
    "prevent_write_metrics",
    "save_root_metadata",
    "single_host_load_and_broadcast",
    "step_format_fixed_length",
    "step_name_format",
    "step_prefix",
    "temporary_path_class",
})
"""Options of orbax for its own files, which a store does not have."""


class CheckpointManagerOptions(msgspec.Struct, frozen=True, kw_only=True):
    """When a `CheckpointManager` saves, and what it keeps.

    Attributes:
        save_interval_steps: A step is saved if it is a multiple of this. The first step is always saved.
        max_to_keep: How many of the last saved steps are kept, or of the best ones if there is `best_fn`; None for
            all.
        keep_period: Multiples of this are kept forever.
        best_fn: Takes the metrics of a step; returns the number that decides which step is best.
        best_mode: `"max"` if the largest number is best, `"min"` if the smallest is.
        save_on_steps: Other steps that are saved.
        should_save_fn: If given, it alone decides whether a step is saved, from its number and the last saved one.
        enable_async_checkpointing: Whether `save` returns when everything is copied, and writes in the background.
        read_only: Whether nothing is ever saved or removed.
    """

    save_interval_steps: int = 1
    max_to_keep: int | None = None
    keep_period: int | None = None
    best_fn: Callable[[Any], float] | None = None
    best_mode: Literal["max", "min"] = "max"
    save_on_steps: Container[int] | None = None
    should_save_fn: Callable[[int, int | None], bool] | None = None
    enable_async_checkpointing: bool = True
    read_only: bool = False

    def wants(self, step: int, last: int | None) -> bool:
        """Return whether a step is to be saved.

        Args:
            step: Its number.
            last: The last saved step; None before the first.

        Returns:
            Whether the options ask for it.
        """
        if self.read_only or (last is not None and last >= step):
            return False
        if self.should_save_fn is not None:
            return bool(self.should_save_fn(step, last))
        is_due = step % self.save_interval_steps == 0
        return last is None or is_due or (self.save_on_steps is not None and step in self.save_on_steps)

    def rules(self) -> dict[str, Any]:
        """Return the rules of a store that keep these steps."""
        if self.best_fn is None:
            return {"keep_last": self.max_to_keep, "keep_best": 0, "keep_every": self.keep_period}
        return {
            "keep_last": 1,
            "keep_best": self.max_to_keep,
            "keep_every": self.keep_period,
            "monitor": BEST,
            "mode": self.best_mode,
        }


def options_of(given: Any) -> CheckpointManagerOptions:
    """Return options of either library as ours; refuse ones of orbax that would change what is kept."""
    if given is None:
        return CheckpointManagerOptions()
    if isinstance(given, CheckpointManagerOptions):
        return given
    if not dataclasses.is_dataclass(given) or isinstance(given, type):
        raise UnsupportedError("options are not CheckpointManagerOptions", found=type(given).__name__)
    known = set(CheckpointManagerOptions.__struct_fields__)
    taken: dict[str, Any] = {}
    for field in dataclasses.fields(given):
        value = getattr(given, field.name)
        if field.name in known:
            taken[field.name] = value
        elif field.name not in _WITHOUT_EFFECT and value is not None and value != field.default:
            raise UnsupportedError(
                f"a store has no {field.name}",
                expected="options among " + ", ".join(sorted(known)),
                found=f"{field.name}={value!r:.100}",
            )
    return CheckpointManagerOptions(**taken)

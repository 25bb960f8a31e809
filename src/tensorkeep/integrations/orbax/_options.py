"""`CheckpointManagerOptions`, and orbax's options as these."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Container
from typing import Any, Final, Literal

import msgspec

from tensorkeep.errors import UnsupportedError

BEST: Final = "best_fn"
"""Name of the metric that `best_fn` gives."""

_INSTEAD: Final = {
    "keep_time_interval": "Use keep_period, which counts steps",
    "todelete_subdir": "Old steps are removed, not moved",
    "todelete_full_path": "Old steps are removed, not moved",
    "save_decision_policy": "Use save_interval_steps, save_on_steps or should_save_fn",
    "preservation_policy": "Use max_to_keep, keep_period or best_fn",
}
"""Options of orbax that a store cannot honor, and what to do."""


class CheckpointManagerOptions(msgspec.Struct, frozen=True):
    """When a `CheckpointManager` saves, and what it keeps.

    Every option of orbax is accepted, in orbax's order. Those that are not listed here concern orbax's own files and
    have no effect, or are refused if they are given: `keep_time_interval`, `todelete_subdir`, `todelete_full_path`,
    `save_decision_policy`, `preservation_policy`, and `multiprocessing_options` for some processes only.

    Attributes:
        save_interval_steps: A step is saved if it is a multiple of this. The first step is always saved.
        max_to_keep: How many of the last saved steps are kept, or of the best ones if there is `best_fn`; None for
            all.
        keep_period: Multiples of this are kept forever.
        best_fn: Takes the metrics of a step; returns the number that decides which step is best.
        best_mode: `"max"` if the largest number is best, `"min"` if the smallest is.
        save_on_steps: Other steps that are saved.
        read_only: Whether nothing is ever saved or removed.
        enable_async_checkpointing: Whether `save` returns when everything is copied, and writes in the background.
        should_save_fn: If given, it alone decides whether a step is saved, from its number and the last saved one.

    Raises:
        UnsupportedError: If an option asks for something that a store cannot do.
    """

    save_interval_steps: int = 1
    max_to_keep: int | None = None
    keep_time_interval: Any = None
    keep_period: int | None = None
    best_fn: Callable[[Any], float] | None = None
    best_mode: Literal["max", "min"] = "max"
    keep_checkpoints_without_metrics: bool = True
    step_prefix: str | None = None
    step_format_fixed_length: int | None = None
    step_name_format: Any = None
    create: bool = True
    cleanup_tmp_directories: bool = False
    save_on_steps: Container[int] | None = None
    single_host_load_and_broadcast: bool = False
    todelete_subdir: str | None = None
    todelete_full_path: str | None = None
    enable_background_delete: bool = False
    num_deletion_threads: int | None = None
    read_only: bool = False
    enable_async_checkpointing: bool = True
    async_options: Any = None
    multiprocessing_options: Any = None
    should_save_fn: Callable[[int, int | None], bool] | None = None
    file_options: Any = None
    atomicity_options: Any = None
    save_root_metadata: bool = True
    temporary_path_class: Any = None
    save_decision_policy: Any = None
    preservation_policy: Any = None
    prevent_write_metrics: bool = False
    enable_should_save_is_saving_in_progress_check: bool = True
    enable_per_process_directory_creation: bool = False
    lightweight_initialize: bool = False

    def __post_init__(self) -> None:
        for name, hint in _INSTEAD.items():
            if getattr(self, name) is not None:
                raise UnsupportedError(f"a store has no {name}", found=f"{getattr(self, name)!r:.100}", hint=hint)
        processes = self.multiprocessing_options
        if getattr(processes, "active_processes", None) is not None or getattr(processes, "primary_host", 0) != 0:
            raise UnsupportedError(
                "all processes save together, and the first one commits",
                expected="multiprocessing_options without active_processes, and primary_host=0",
                found=f"{processes!r:.200}",
            )
        if getattr(self.async_options, "post_finalization_callback", None) is not None:
            raise UnsupportedError(
                "a store has no post_finalization_callback", hint="Call wait_until_finished, then the function"
            )

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
    known = CheckpointManagerOptions.__struct_fields__
    taken: dict[str, Any] = {}
    for field in dataclasses.fields(given):
        value = getattr(given, field.name)
        if field.name in known:
            taken[field.name] = value
        elif value is not None and value != field.default:
            raise UnsupportedError(
                f"the option {field.name} is not known",
                expected="options among " + ", ".join(known),
                found=f"{field.name}={value!r:.100}",
            )
    return CheckpointManagerOptions(**taken)

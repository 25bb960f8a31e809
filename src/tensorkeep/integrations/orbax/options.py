"""What `orbax.checkpoint.options` has for `CheckpointManagerOptions`."""

from __future__ import annotations

from typing import Any

import msgspec

__all__ = ["AsyncOptions", "MultiprocessingOptions"]


class AsyncOptions(msgspec.Struct, frozen=True):
    """How saves run in the background.

    Attributes:
        timeout_secs: Ignored, as all others but the next one: they concern orbax's own threads.
        post_finalization_callback: Must be None: call it after `wait_until_finished`.
        barrier_sync_fn: Ignored.
        create_directories_asynchronously: Ignored.
    """

    timeout_secs: int = 1200
    barrier_sync_fn: Any = None
    post_finalization_callback: Any = None
    create_directories_asynchronously: bool = True


class MultiprocessingOptions(msgspec.Struct, frozen=True):
    """Which processes save.

    Attributes:
        primary_host: Must be 0 or None: the first process commits.
        active_processes: Must be None: all processes save together.
        barrier_sync_key_prefix: Ignored.
    """

    primary_host: int | None = 0
    active_processes: set[int] | None = None
    barrier_sync_key_prefix: str | None = None

"""Verify every file of a directory against its manifest."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import ExitStack

from tensorkeep.checkpoint.verifying._run import run_checks
from tensorkeep.kinds import Finding
from tensorkeep.kinds.folder import folder_checks


def verify_folder(
    path: str | os.PathLike[str], *, quick: bool = False, progress: Callable[[int, int], None] | None = None
) -> list[Finding]:
    """Check every file that the manifest of a directory lists; other files are ignored."""
    folder = os.fsdecode(path)
    with ExitStack() as opened:
        return list(run_checks(folder_checks(folder, opened, quick=quick), folder, progress=progress).findings)

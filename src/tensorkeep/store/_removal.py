"""Steps that go, safely: a step loses its name in one instant, and only then its files.

root/step-00000500/                                     the step
root/.step-00000500.tensorkeep-removed-<16 digits>/     on its way out; whoever saves next finishes that
"""

from __future__ import annotations

import os
import shutil
from contextlib import suppress

from tensorkeep.errors import SourceMissingError, TensorkeepError, as_transport_error
from tensorkeep.store._names import BASE_NAME, is_removed, removed_name, step_name
from tensorkeep.store._steps import list_names
from tensorkeep.transport import sync_directory, transaction


def remove_step(root: str, step: int) -> None:
    """Remove a step, which nobody sees any more from one instant on.

    Who has it open goes on reading; a step that is a symbolic link loses the link only.
    """
    path, aside = os.path.join(root, step_name(step)), os.path.join(root, removed_name(step))
    if not os.path.isdir(path):
        raise SourceMissingError("no such step", path=path, found="nothing, or no longer")
    with (
        transaction(path, BASE_NAME, durable=False, patience_s=0),
        as_transport_error("could not remove the step", path),
    ):
        os.rename(path, aside)
    with as_transport_error("could not remove the step", path):
        sync_directory(root)
        _delete(aside)


def sweep_removed(root: str) -> None:
    """Finish the removal of steps where processes died over it."""
    for name in list_names(root):
        if is_removed(name):
            with suppress(OSError):
                _delete(os.path.join(root, name))


def sweep_step(path: str) -> None:
    """Remove what an interrupted save left in the directory of a step, and the directory if nothing else is in it."""
    with suppress(TensorkeepError, OSError):
        with transaction(path, BASE_NAME, durable=False, patience_s=0):
            pass  # that is what happens on the way in
        os.rmdir(path)


def _delete(path: str) -> None:
    if os.path.islink(path):
        os.unlink(path)
        return
    while os.path.isdir(path):
        with suppress(FileNotFoundError):  # somebody else is sweeping too
            shutil.rmtree(path)

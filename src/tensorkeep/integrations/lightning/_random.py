"""The states of random generators, kept with the checkpoints of a Trainer, which has none of them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import torch

from tensorkeep.buffers import Buffer
from tensorkeep.errors import StateDictMismatchError, UnsupportedError
from tensorkeep.integrations.lightning._library import callback_class, import_library
from tensorkeep.integrations.lightning._plateau import due_metrics, step_schedules
from tensorkeep.tensors import prepare, write_file
from tensorkeep.training import capture, check_fit, restore
from tensorkeep.transport import ByteRange, ByteSource

import_library()
if TYPE_CHECKING:
    from lightning.pytorch import Callback
else:
    Callback = callback_class()


class RandomState(Callback):
    """Keeps the random generators of Python, NumPy and torch in checkpoints, of all devices and processes.

    A Trainer brings back weights, optimizers, schedules and its place in the run, and goes on with whatever random
    numbers there are. With this callback, a run that is resumed from the end of an epoch goes on as one that never
    stopped, bit for bit; one that is resumed within an epoch does so if its loader keeps its place (has
    `state_dict()`).

        trainer = Trainer(plugins=[TensorkeepCheckpointIO()], callbacks=[RandomState()])

    Optimizers and schedules are held against the checkpoint before they are loaded: what is of another kind, or of
    parameters in another order, is an error, where a Trainer goes on with the moments of the wrong ones.

    `ReduceLROnPlateau` takes a step at the end of an epoch, after the checkpoint. A Trainer leaves it out when it is
    resumed; with this callback it is taken.

    A checkpoint without such states is resumed as it is without the callback. The states are tensors of bytes, each a
    safetensors file of its own, so that every plugin can save them.
    """

    def __init__(self) -> None:
        """Begin without a state."""
        super().__init__()
        self._saved: list[torch.Tensor] | None = None
        self._checkpoint: dict[str, Any] = {}

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:  # noqa: ARG002 - Lightning's
        """Forget what was loaded for another run."""
        self._saved, self._checkpoint = None, {}

    def on_load_checkpoint(self, trainer: Any, pl_module: Any, checkpoint: dict[str, Any]) -> None:  # noqa: ARG002
        """Keep the checkpoint until there are optimizers."""
        self._checkpoint = checkpoint

    def on_fit_start(self, trainer: Any, pl_module: Any) -> None:  # noqa: ARG002 - Lightning's
        """Hold the optimizers and schedules, which are about to be loaded, against the checkpoint.

        Raises:
            StateDictMismatchError: If the checkpoint is of others.
        """
        checkpoint, self._checkpoint = self._checkpoint, {}
        schedules = [config.scheduler for config in trainer.lr_scheduler_configs]
        states = checkpoint.get("lr_schedulers", [])
        n_both = min(len(schedules), len(states))  # a Trainer lets the others go
        try:
            if trainer.strategy.lightning_restore_optimizer and "optimizer_states" in checkpoint:
                check_fit(list(trainer.optimizers), checkpoint["optimizer_states"], "optimizer_states")
            check_fit(schedules[:n_both], states[:n_both], "lr_schedulers")
        except StateDictMismatchError as error:
            error.path, error.hint = str(trainer.ckpt_path), _AS_MADE
            raise

    def on_save_checkpoint(self, trainer: Any, pl_module: Any, checkpoint: dict[str, Any]) -> None:  # noqa: ARG002
        """Put the states of all processes into the checkpoint."""
        own = _as_bytes(capture(metrics=due_metrics(trainer)))
        states = _gathered(trainer.strategy, own) if trainer.world_size > 1 else [own]
        checkpoint["callbacks"][self.state_key] = {"ranks": states}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Keep the states until training begins."""
        self._saved = state_dict["ranks"]

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:  # noqa: ARG002 - Lightning's
        """Set the generators of this process, after all that draws numbers while a run is set up.

        Raises:
            StateDictMismatchError: If the states are those of another number of processes, or of devices that this
                one does not have. Nothing was changed.
            UnsupportedError: If this version of Lightning resumes in another way.
        """
        if self._saved is None:
            return
        saved, self._saved = self._saved, None
        if len(saved) != trainer.world_size:
            raise StateDictMismatchError(
                "the states of random generators are of another number of processes",
                expected=f"{trainer.world_size}",
                found=f"{len(saved)}",
                hint=_WITHOUT,
            )
        try:
            state = restore(saved[trainer.global_rank].cpu().numpy().tobytes())
        except StateDictMismatchError as error:
            raise error.with_fields(hint=_WITHOUT) from None
        _begin_epoch_anew(trainer.fit_loop)
        step_schedules(trainer, state["metrics"])


_AS_MADE = (
    "Neither optimizers nor schedules were changed. Make them as they were made for the checkpoint; or load its"
    " weights alone, with load_from_checkpoint, and train anew"
)
_WITHOUT = "Leave out the callback RandomState to go on with other random numbers"


def _begin_epoch_anew(fit_loop: Any) -> None:
    """Have the next epoch make its iterator when it begins, as it would have without a stop.

    A Trainer that resumes at the end of an epoch takes the one that it made while it was set up; but to make one
    takes a random number, and another order of the data comes of it.
    """
    if fit_loop.epoch_loop.restarting or not getattr(fit_loop, "is_resuming", False):
        return
    fit_loop._resuming_from_checkpoint = False
    if fit_loop.is_resuming:
        raise UnsupportedError("this version of Lightning resumes in a way that is not known here", hint=_WITHOUT)


def _gathered(strategy: Any, own: torch.Tensor) -> list[torch.Tensor]:
    """Return the bytes of all processes, by rank."""
    device = strategy.root_device
    sizes = strategy.all_gather(torch.tensor([len(own)], device=device)).flatten().tolist()
    rows = strategy.all_gather(torch.nn.functional.pad(own, (0, max(sizes) - len(own))).to(device)).cpu()
    return [row[:size].clone() for row, size in zip(rows, sizes, strict=True)]


def _as_bytes(state: Any) -> torch.Tensor:
    """Return the bytes of the file that a state would be saved to."""
    prepared = prepare(state)
    sink = _MemorySink()
    write_file(sink, prepared.to_write, prepared.with_ties(None), state=prepared.state)
    return torch.frombuffer(sink.content, dtype=torch.uint8)


class _MemorySink:
    """A sink for a few kilobytes: a run does not fail because the disk for temporary files is full."""

    def __init__(self) -> None:
        self.content = bytearray()

    def preallocate(self, nbytes: int) -> None:
        """Do nothing: a bytearray grows."""

    def write(self, buffers: Iterable[Buffer]) -> None:
        """Append buffers."""
        for buffer in buffers:
            self.content += buffer

    def rewrite(self, offset: int, data: Buffer) -> None:
        """Overwrite bytes."""
        self.content[offset : offset + len(memoryview(data).cast("B"))] = data

    def copy_from(self, source: ByteSource, span: ByteRange) -> None:
        """Append bytes of a source."""
        raise NotImplementedError("random generators are in no file")

"""`RandomState`: a callback that adds what checkpoints of a Trainer lack for an exact continuation.

That is the states of random generators, and metrics that a learning rate schedule has yet to see: ModelCheckpoint
saves at the end of an epoch, just before a Trainer gives the metrics of this epoch to `ReduceLROnPlateau`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch

from tensorkeep.errors import StateDictMismatchError, UnsupportedError
from tensorkeep.integrations.lightning._library import callback_class, import_library
from tensorkeep.tensors import file_body, prepare
from tensorkeep.training import capture, check_fit, restore

import_library()
if TYPE_CHECKING:
    from lightning.pytorch import Callback
else:
    Callback = callback_class()


class RandomState(Callback):
    """Saves the random generators of Python, NumPy and torch in checkpoints, for all devices and processes.

        trainer = Trainer(plugins=[TensorkeepCheckpointIO()], callbacks=[RandomState()])

    A Trainer restores weights, optimizers, schedules and its position in the run, but not random generators. With
    this callback, a run that resumes from the end of an epoch continues bit for bit as if it had never stopped. A run
    that resumes within an epoch does so if its loader keeps its position (has `state_dict()`).

    Optimizers and schedules are checked against the checkpoint before they are loaded: another kind, or parameters in
    another order, is an error, where a Trainer would continue with the moments of the wrong parameters.

    `ReduceLROnPlateau` takes a step at the end of an epoch, after the checkpoint is saved. A Trainer skips this step
    when it resumes; with this callback it is taken.

    A checkpoint without such states is resumed as without the callback. The states are stored as byte tensors, each a
    safetensors file, so that every plugin can save them.
    """

    def __init__(self) -> None:
        """Create the callback."""
        super().__init__()
        self._saved: list[torch.Tensor] | None = None
        self._checkpoint: dict[str, Any] = {}

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:  # noqa: ARG002 - Lightning's
        """Forget what was loaded for another run; Lightning calls this."""
        self._saved, self._checkpoint = None, {}

    def on_load_checkpoint(self, trainer: Any, pl_module: Any, checkpoint: dict[str, Any]) -> None:  # noqa: ARG002
        """Keep the checkpoint until the optimizers exist; Lightning calls this."""
        self._checkpoint = checkpoint

    def on_fit_start(self, trainer: Any, pl_module: Any) -> None:  # noqa: ARG002 - Lightning's
        """Check that the checkpoint fits the optimizers and schedules, before they are loaded; Lightning calls this.

        Raises:
            StateDictMismatchError: If it has the states of other optimizers or schedules.
        """
        checkpoint, self._checkpoint = self._checkpoint, {}
        schedules = [config.scheduler for config in trainer.lr_scheduler_configs]
        states = checkpoint.get("lr_schedulers", [])
        n_both = min(len(schedules), len(states))  # a Trainer ignores the others
        try:
            if trainer.strategy.lightning_restore_optimizer and "optimizer_states" in checkpoint:
                check_fit(list(trainer.optimizers), checkpoint["optimizer_states"], "optimizer_states")
            check_fit(schedules[:n_both], states[:n_both], "lr_schedulers")
        except StateDictMismatchError as error:
            error.path, error.hint = str(trainer.ckpt_path), _AS_CREATED
            raise

    def on_save_checkpoint(self, trainer: Any, pl_module: Any, checkpoint: dict[str, Any]) -> None:  # noqa: ARG002
        """Add the states of all processes to the checkpoint; Lightning calls this."""
        own = _as_bytes(capture(metrics=_due_metrics(trainer)))
        states = _gathered(trainer.strategy, own) if trainer.world_size > 1 else [own]
        checkpoint["callbacks"][self.state_key] = {"ranks": states}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Keep the states until training begins; Lightning calls this."""
        self._saved = state_dict["ranks"]

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:  # noqa: ARG002 - Lightning's
        """Set the generators of this process, after the setup of the run has drawn its numbers; Lightning calls this.

        Raises:
            StateDictMismatchError: If the states are from another number of processes, or from devices that this
                machine lacks. Nothing was changed.
            UnsupportedError: If this version of Lightning resumes in an unknown way.
        """
        if self._saved is None:
            return
        saved, self._saved = self._saved, None
        if len(saved) != trainer.world_size:
            raise StateDictMismatchError(
                "the states of random generators are from another number of processes",
                expected=f"{trainer.world_size}",
                found=f"{len(saved)}",
                hint=_WITHOUT,
            )
        try:
            state = restore(saved[trainer.global_rank].cpu().numpy().tobytes())
        except StateDictMismatchError as error:
            raise error.with_fields(hint=_WITHOUT) from None
        _recreate_iterator(trainer.fit_loop)
        _step_schedules(trainer, state["metrics"])


_AS_CREATED = (
    "Neither optimizers nor schedules were changed. Create them as they were for the checkpoint; or load only its"
    " weights, with load_from_checkpoint, and train from the start"
)
_WITHOUT = "Leave out the callback RandomState to continue with other random numbers"


def _recreate_iterator(fit_loop: Any) -> None:
    """Make the next epoch create its iterator when it begins, as it would have without a stop.

    A Trainer that resumes at the end of an epoch uses the iterator that it created during setup. But creating one
    draws a random number, so that the data would come in another order.
    """
    if fit_loop.epoch_loop.restarting or not getattr(fit_loop, "is_resuming", False):
        return
    fit_loop._resuming_from_checkpoint = False
    if fit_loop.is_resuming:
        raise UnsupportedError("this version of Lightning resumes in an unknown way", hint=_WITHOUT)


def _gathered(strategy: Any, own: torch.Tensor) -> list[torch.Tensor]:
    """Return the bytes of all processes, by rank."""
    device = strategy.root_device
    sizes = strategy.all_gather(torch.tensor([len(own)], device=device)).flatten().tolist()
    rows = strategy.all_gather(torch.nn.functional.pad(own, (0, max(sizes) - len(own))).to(device)).cpu()
    return [row[:size].clone() for row, size in zip(rows, sizes, strict=True)]


def _as_bytes(state: Any) -> torch.Tensor:
    """Return the bytes of the file that a state would be saved to."""
    prepared = prepare(state)
    body = file_body(prepared.to_write, prepared.with_ties(None), state=prepared.state)
    return torch.frombuffer(bytearray(b"".join(body.pieces())), dtype=torch.uint8)


def _due_metrics(trainer: Any) -> dict[int, Any]:
    """Return the metrics that schedules have yet to see of the epoch that is ending."""
    progress = trainer.fit_loop.epoch_progress.current
    is_at_end = progress.completed < progress.started and trainer.fit_loop.epoch_loop.batch_progress.is_last_batch
    if not is_at_end or not trainer.lightning_module.automatic_optimization:
        return {}
    metrics = trainer.callback_metrics
    return {
        place: metrics[schedule.monitor]
        for place, schedule in enumerate(trainer.lr_scheduler_configs)
        if schedule.reduce_on_plateau
        and schedule.interval == "epoch"
        and (trainer.current_epoch + 1) % schedule.frequency == 0
        and schedule.monitor in metrics
    }


def _step_schedules(trainer: Any, metrics: Mapping[int, Any]) -> None:
    """Take the schedules' steps that were due when the checkpoint was saved."""
    progress = trainer.fit_loop.epoch_loop.scheduler_progress
    for place, schedule in enumerate(trainer.lr_scheduler_configs):
        if place in metrics and schedule.reduce_on_plateau:
            progress.increment_ready()
            trainer.lightning_module.lr_scheduler_step(schedule.scheduler, metrics[place])
            progress.increment_completed()

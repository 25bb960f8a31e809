"""Metrics that learning rate schedules are still to see when a checkpoint is saved.

ModelCheckpoint saves at the end of an epoch, just before a Trainer gives the metrics of this epoch to
`ReduceLROnPlateau`. A Trainer that goes on from there has no such metrics, and leaves the step out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def due_metrics(trainer: Any) -> dict[int, Any]:
    """Return what schedules are still to see of the epoch that ends."""
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


def step_schedules(trainer: Any, metrics: Mapping[int, Any]) -> None:
    """Let schedules take the steps that were due when a checkpoint was saved."""
    progress = trainer.fit_loop.epoch_loop.scheduler_progress
    for place, schedule in enumerate(trainer.lr_scheduler_configs):
        if place in metrics and schedule.reduce_on_plateau:
            progress.increment_ready()
            trainer.lightning_module.lr_scheduler_step(schedule.scheduler, metrics[place])
            progress.increment_completed()

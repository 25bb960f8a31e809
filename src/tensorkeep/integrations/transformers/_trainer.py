"""A Trainer whose checkpoints are complete or absent, and contain nothing that could run.

The Trainer of transformers decides when and what it saves. Its methods that would write or read pickles are
overridden here. While it saves, it sees another output directory, which nothing else reads; afterwards that directory
becomes `checkpoint-500`, or a step in a bucket.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from tempfile import TemporaryDirectory
from typing import Any, Final

import torch
import transformers
from accelerate.utils import DistributedType, broadcast_object_list, gather_object

from tensorkeep.checkpoint import save_folder
from tensorkeep.errors import SourceMissingError, TensorkeepError, UnsupportedError, as_transport_error
from tensorkeep.integrations.transformers._buckets import STATE, BucketRun, receiving
from tensorkeep.integrations.transformers._checkpoints import (
    check_whole,
    get_last_checkpoint,
    remove_old,
    remove_plain,
)
from tensorkeep.integrations.transformers._directory import changed_together, errors_of_libraries
from tensorkeep.integrations.transformers._models import missing_weights, refuse_missing, stem_of
from tensorkeep.integrations.transformers._remote import sent_together
from tensorkeep.integrations.transformers._states import (
    load_optimizer,
    load_process,
    load_scaler,
    require_optimizer,
    save_optimizer,
    save_processes,
    save_scaler,
)
from tensorkeep.integrations.transformers._weights import SHARD_SIZE, weights_with_digests
from tensorkeep.kinds.folder import has_manifest
from tensorkeep.training import capture
from tensorkeep.transport import is_in_store, join, local_path

_PICKLED_ARGUMENTS: Final = "training_args.bin"
_ARGUMENTS: Final = "training_args.json"

_LOSS: Final = {"_tr_loss", "_globalstep_last_logged", "_total_loss_scalar", "_initial_global_step"}
"""Attributes of the accumulated loss: what is not logged yet, what was, and since when.

Without them the next line of the log would differ, and so would the loss of the whole run.
"""

_DISTRIBUTED_TYPES: Final = (DistributedType.NO, DistributedType.MULTI_CPU, DistributedType.MULTI_GPU)
"""Kinds of runs in which each process has the whole model and the whole state of the optimizer."""

_DEVICES: Final = ("cpu", "cuda", "mps")
"""Devices whose random generators are saved."""


class Trainer(transformers.Trainer):
    """`transformers.Trainer`, with checkpoints that are complete or absent and contain no pickles.

        trainer = Trainer(model, TrainingArguments("run", save_steps=500), train_dataset=dataset)
        trainer.train(resume_from_checkpoint=True)

    It takes the arguments of that class and behaves like it, except:

    - `checkpoint-500/` appears at once, with a manifest of all its files. If a save is interrupted, all earlier
      checkpoints are whole. Old ones are removed only after that.
    - Model, optimizer, scheduler, scaler and the states of random generators are saved as safetensors files.
    - `train(resume_from_checkpoint=True)` resumes from the newest checkpoint that is whole to the last byte; one that
      you name is verified too. Checkpoints of `transformers.Trainer` are accepted, and nothing in their pickles is
      run.
    - A checkpoint that lacks weights of the model, or a best model that is gone, is an error and not a log message.

    To add this to another Trainer, inherit from both, this one first: `class MyTrainer(Trainer, SFTTrainer)`.

    The output directory may be a URL, such as `s3://bucket/run`. Its checkpoints are then the steps of a
    `tensorkeep.CheckpointStore`, which are sent from a temporary directory, and received into one.

    It supports one process, or several that each have the whole model (DataParallel, DistributedDataParallel).
    """

    max_shard_size: int | str = SHARD_SIZE
    """Largest size of a file of the model: a number of bytes, or text such as `"5GB"`."""

    _staging: str | None = None
    """While this process saves a checkpoint: the directory used in place of the output directory."""

    def __init__(self, model: Any = None, args: Any = None, *others: Any, **named: Any) -> None:
        self._runs: dict[str, BucketRun] = {}
        self._urls: dict[str, str] = {}
        output_dir = None if args is None else args.output_dir
        if output_dir is None or not is_in_store(output_dir):
            local_path(output_dir or "")  # before a directory named `s3:` is created
            super().__init__(model, args, *others, **named)
            return
        _refuse_to_push(args)
        with TemporaryDirectory(prefix="tensorkeep-") as folder:
            args.output_dir = folder  # else it would create a directory named `s3:`
            try:
                super().__init__(model, args, *others, **named)
            finally:
                args.output_dir = output_dir
        self._run_in_bucket(None)

    def train(self, resume_from_checkpoint: Any = None, *args: Any, **kwargs: Any) -> Any:
        """Train, from the start or from a checkpoint.

        Args:
            resume_from_checkpoint: The path or URL of a checkpoint; or True for the newest whole one in the output
                directory, in a bucket the one saved last.
            *args: Passed to `transformers.Trainer.train`.
            **kwargs: Passed to `transformers.Trainer.train`.

        Returns:
            What `transformers.Trainer.train` returns.

        Raises:
            SourceMissingError: If there is no such checkpoint, no whole one, or it has only the model.
            IntegrityError: If the checkpoint is damaged.
            StateDictMismatchError: If it does not fit the model, the optimizer or the scheduler.
            StateError: If something to save is not data.
            UnsupportedError: If the model or the optimizer is sharded over processes.
            TransportError: If a checkpoint cannot be written or read.
        """
        self._refuse_sharded()
        with self._resumable(resume_from_checkpoint) as path:
            return super().train(path, *args, **kwargs)

    def _refuse_sharded(self) -> None:
        kind, device = self.accelerator.distributed_type, self.args.device.type
        is_sharded = kind not in _DISTRIBUTED_TYPES or getattr(self, "is_distributed_loading_by_transformers", False)
        if is_sharded or device not in _DEVICES:
            raise UnsupportedError(
                "this Trainer supports one process, or several that each have the whole model",
                expected=f"no sharding, on {', '.join(_DEVICES)}",
                found=f"{kind.value}, on {device}",
                hint="Use transformers.Trainer for this run",
            )

    def _agreed(self, work: Callable[[], Any]) -> Any:
        """Do something in the first process, and return its result, or raise its error, in all of them."""
        outcome: list[Any] = [None]
        if self.is_world_process_zero():
            try:
                outcome = [work()]
            except TensorkeepError as error:
                outcome = [error]
        broadcast_object_list(outcome)
        if isinstance(outcome[0], TensorkeepError):
            raise outcome[0]
        return outcome[0]

    @contextmanager
    def _resumable(self, wanted: Any) -> Iterator[Any]:
        """Give the path of a checkpoint that is whole and has everything that is needed."""
        if not wanted:
            yield wanted
        elif is_in_store(self.args.output_dir if wanted is True else wanted):
            with self._received(None if wanted is True else wanted) as folder:
                require_optimizer(folder, self._urls[folder])
                yield folder
        else:
            yield self._agreed(lambda: self._to_resume_from(wanted))

    def _to_resume_from(self, wanted: Any) -> str:
        if wanted is True:
            path = get_last_checkpoint(self.args.output_dir)
            if path is None:
                raise SourceMissingError("there is no whole checkpoint", path=self.args.output_dir)
        else:
            path = local_path(wanted)
            check_whole(path)
        require_optimizer(path, path)
        return path

    @contextmanager
    def _received(self, wanted: str | None) -> Iterator[str]:
        """Give a directory of this node with the checkpoint at a URL, or with the newest one."""
        source = self._run_in_bucket(None) if wanted is None else wanted
        with receiving(source, self.args, self._agreed) as (folder, url):
            self._urls[folder] = url
            yield folder

    def _run_in_bucket(self, trial: Any) -> BucketRun | None:
        """Return what is at the output directory if that is a URL."""
        root = self.args.output_dir
        if not is_in_store(root):
            return None
        inner = str(super()._get_output_dir(trial)).removeprefix(str(root)).strip("/")
        if inner not in self._runs:
            metric, greater_is_better = self.args.metric_for_best_model, self.args.greater_is_better
            url = join(root, inner) if inner else root
            self._runs[inner] = BucketRun(url, metric, greater_is_better=greater_is_better)
        return self._runs[inner]

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        run = self._run_in_bucket(trial)
        if run is not None:
            self._save_to_bucket(run, model, trial)
            return
        path = os.path.join(self._get_output_dir(trial), f"checkpoint-{self.state.global_step}")
        if self.args.should_save:
            self._save_to_folder(path, model, trial)
        else:
            super()._save_checkpoint(model, trial)
        self.accelerator.wait_for_everyone()
        self.state.best_model_checkpoint = self._best_beside(path)
        if self.args.push_to_hub:
            self._push_from_checkpoint(path)
        if self.args.should_save:
            remove_old(path, limit=self.args.save_total_limit, best=self.state.best_model_checkpoint)

    def _save_to_folder(self, path: str, model: Any, trial: Any) -> None:
        was_there, was_plain = os.path.lexists(path), not has_manifest(path)
        with as_transport_error("could not save the checkpoint", path):
            os.makedirs(os.path.dirname(path), exist_ok=True)
        with save_folder(path) as staging, errors_of_libraries(path):
            self._fill(staging, model, trial)
            self.state.best_model_checkpoint = self._best_beside(path)
            self.state.save_to_json(os.path.join(staging, STATE))
            if os.path.lexists(path) and not was_there:
                raise UnsupportedError(
                    "something was written to the checkpoint while it was saved, and would be lost",
                    path=path,
                    hint="Write to the folder from self._get_output_dir(trial), or to the checkpoint in on_save",
                )
            saved = set(os.listdir(staging))
        if was_there and was_plain:
            remove_plain(path, saved)

    def _fill(self, staging: str, model: Any, trial: Any) -> None:
        """Save a checkpoint to a directory that nothing reads from yet."""
        best, self._staging = self.state.best_model_checkpoint, staging
        try:
            super()._save_checkpoint(model, trial)
        finally:  # super() noted the staging directory as its output directory
            self.state.best_model_checkpoint, self._staging = best, None
        _move_up(os.path.join(staging, f"checkpoint-{self.state.global_step}"), staging)

    def _save_to_bucket(self, run: BucketRun, model: Any, trial: Any) -> None:
        if self.args.should_save:
            with TemporaryDirectory(prefix="tensorkeep-") as staging, errors_of_libraries(run.url):
                self._fill(staging, model, trial)
                run.save(staging, self.state)
        else:
            super()._save_checkpoint(model, trial)
        self.accelerator.wait_for_everyone()
        self.state.best_model_checkpoint = run.best_of(self.state)
        if self.args.should_save:
            run.remove_old(self.state, self.args.save_total_limit)

    def _best_beside(self, path: str) -> str | None:
        """Return the path of the best checkpoint, which may be the one being saved."""
        best = os.path.join(os.path.dirname(path), f"checkpoint-{self.state.best_global_step}")
        is_known = self.state.best_global_step and (best == path or os.path.isdir(best))
        return best if is_known else self.state.best_model_checkpoint

    def _get_output_dir(self, trial: Any) -> str:
        return self._staging or str(super()._get_output_dir(trial))

    def _push_from_checkpoint(self, checkpoint_folder: str) -> None:
        if self._staging is None:  # otherwise the checkpoint does not exist yet
            super()._push_from_checkpoint(checkpoint_folder)

    def _save(self, output_dir: str | None = None, state_dict: dict[str, Any] | None = None) -> None:
        directory = output_dir or self.args.output_dir
        if not self.args.should_save:
            super()._save(directory, state_dict)
        elif is_in_store(directory):
            with sent_together(directory, stem_of(self.model), sha256=False) as folder:
                self._save_model(folder, state_dict)
        elif self._staging is not None and _is_within(directory, self._staging):
            os.makedirs(directory, exist_ok=True)
            self._save_model(directory, state_dict)
        else:
            with changed_together(directory, stem_of(self.model)) as folder:
                self._save_model(folder, state_dict)

    def _save_model(self, folder: str, state_dict: dict[str, Any] | None) -> None:
        """Save the model and what belongs to it to a folder that nothing reads from yet."""
        model = self.accelerator.unwrap_model(self.model, keep_torch_compile=False)
        output_dir, self.args.output_dir = self.args.output_dir, str(self.args.output_dir)  # it is pickled
        try:
            with weights_with_digests(model, folder, max_shard_size=self.max_shard_size) as state:
                super()._save(folder, state if state_dict is None else state_dict)
        finally:
            self.args.output_dir = output_dir
        with suppress(FileNotFoundError):
            os.unlink(os.path.join(folder, _PICKLED_ARGUMENTS))
        with open(os.path.join(folder, _ARGUMENTS), "w", encoding="utf-8") as file:
            file.write(self.args.to_json_string() + "\n")

    def _save_optimizer_and_scheduler(self, output_dir: str) -> None:
        if self.args.should_save:
            save_optimizer(output_dir, self.optimizer, self.lr_scheduler)

    def _save_scaler(self, output_dir: str) -> None:
        scaler = getattr(self.accelerator, "scaler", None)
        if self.args.should_save and scaler is not None:
            save_scaler(output_dir, scaler)

    def _save_rng_state(self, output_dir: str) -> None:
        loss = {name: value for name in sorted(_LOSS) if (value := getattr(self, name, None)) is not None}
        states = gather_object([capture(loss={name: _on_cpu(value) for name, value in loss.items()})])
        if self.args.should_save:
            save_processes(output_dir, states)

    @contextmanager
    def _naming(self, checkpoint: str) -> Iterator[None]:
        """Note on every error in the block which checkpoint was being loaded."""
        try:
            yield
        except Exception as error:
            error.add_note(f"This happened while a run was resumed from {self._urls.get(checkpoint, checkpoint)}")
            raise

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: Any = None) -> None:
        with self._naming(resume_from_checkpoint):
            super()._load_from_checkpoint(resume_from_checkpoint, model)

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        if checkpoint is not None:
            with self._naming(checkpoint):
                load_optimizer(checkpoint, self.optimizer, self.lr_scheduler)

    def _load_scaler(self, checkpoint: str | None) -> None:
        scaler = getattr(self.accelerator, "scaler", None)
        if checkpoint is not None and scaler is not None:
            with self._naming(checkpoint):
                load_scaler(checkpoint, scaler)

    def _load_rng_state(self, checkpoint: str | None) -> None:
        if checkpoint is None:
            return
        loss = load_process(checkpoint, self.args.process_index, self.args.world_size).get("loss", {})
        for name in _LOSS & loss.keys():
            own = getattr(self, name, None)
            is_tensor = isinstance(own, torch.Tensor)
            setattr(self, name, torch.as_tensor(loss[name]).to(own, copy=True) if is_tensor else loss[name])

    def _load_callback_state(self) -> None:
        super()._load_callback_state()
        run = self._run_in_bucket(None)
        if run is not None:  # the Trainer has looked for a local directory
            self.state.best_model_checkpoint = run.best_of(self.state)

    def _load_best_model(self) -> None:
        best = self.state.best_model_checkpoint
        if not is_in_store(best):
            self._agreed(lambda: check_whole(best))
            super()._load_best_model()
            return
        with self._received(best) as folder:
            self.state.best_model_checkpoint = folder
            try:
                super()._load_best_model()
            finally:
                self.state.best_model_checkpoint = best

    def _issue_warnings_after_load(self, load_result: Any) -> None:
        missing = missing_weights(self.model, load_result.missing_keys)
        if missing:
            refuse_missing(missing, type(self.model).__name__, hint="Create the model as it was for the checkpoint")
        rest = load_result.missing_keys if set(load_result.missing_keys) == _left_out(self.model) else []
        super()._issue_warnings_after_load(load_result._replace(missing_keys=list(rest)))


def _left_out(model: Any) -> set[str]:
    """Return the names that a model does not save: if just these are missing, transformers ties its weights again."""
    return set(getattr(model, "_keys_to_ignore_on_save", None) or ())


def _refuse_to_push(args: Any) -> None:
    if args.push_to_hub:
        raise UnsupportedError(
            "push_to_hub needs a local output directory",
            path=args.output_dir,
            hint="Push when training is over: tensorkeep.push",
        )


def _on_cpu(value: Any) -> Any:
    return value.cpu() if isinstance(value, torch.Tensor) else value


def _move_up(folder: str, target: str) -> None:
    for name in os.listdir(folder):
        os.rename(os.path.join(folder, name), os.path.join(target, name))
    os.rmdir(folder)


def _is_within(path: str, folder: str) -> bool:
    around = os.path.realpath(folder)
    return os.path.commonpath([os.path.realpath(path), around]) == around

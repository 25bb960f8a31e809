"""A Trainer that is interrupted ends as one that was not; what it leaves is complete, and holds nothing that runs."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

import tensorkeep
from tensorkeep.checkpoint import save_folder, verify_folder
from tensorkeep.errors import (
    BusyError,
    IntegrityError,
    SourceMissingError,
    StateDictMismatchError,
    StateError,
    TransportError,
    UnsupportedError,
)
from tensorkeep.integrations.transformers import (
    DamagedCheckpointWarning,
    Trainer,
    from_pretrained,
    get_last_checkpoint,
)
from tests.support.integrations.transformers.tiny_trainers import (
    InterruptAt,
    Interrupted,
    Texts,
    assert_equal,
    gpt2,
    trainer,
    weights,
)

_CHANGES = {"train_runtime", "train_samples_per_second", "train_steps_per_second", "total_flos"} | {
    f"eval_{name}" for name in ("runtime", "samples_per_second", "steps_per_second")
}
"""What is another in each run, or is said of one call of `train` only."""


def interrupted(directory: Path, step: int, **settings: Any) -> None:
    with pytest.raises(Interrupted):
        trainer(directory, callbacks=[InterruptAt(step)], **settings).train()


def resumed(directory: Path, **settings: Any) -> Any:
    run = trainer(directory, **settings)
    torch.rand(7)  # another state than at the beginning
    run.train(resume_from_checkpoint=True)
    return run


def log(run: Any) -> list[dict[str, Any]]:
    return [{key: value for key, value in line.items() if key not in _CHANGES} for line in run.state.log_history]


def optimizer(checkpoint: Path) -> dict[str, torch.Tensor]:
    with tensorkeep.open(checkpoint / "training_state" / "optimizer.safetensors", framework="torch") as file:
        return file.load()


def steps(directory: Path) -> list[int]:
    return sorted(int(path.name.partition("-")[2]) for path in directory.iterdir() if path.name[0] != ".")


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> Any:
    run = trainer(tmp_path_factory.mktemp("uninterrupted"))
    run.train()
    return run


@pytest.mark.parametrize(
    ("at", "save_steps"), [(12, 5), (10, 8), (20, 3)], ids=["within an epoch", "at the end of one", "before the end"]
)
def test_a_resumed_run_is_the_same_to_the_last_bit(
    tmp_path: Path, uninterrupted: Any, at: int, save_steps: int
) -> None:
    interrupted(tmp_path, at, save_steps=save_steps)

    run = resumed(tmp_path, save_steps=save_steps)

    assert_equal(weights(run.model), weights(uninterrupted.model))
    assert log(run) == log(uninterrupted)
    end = [Path(each.args.output_dir) / "checkpoint-20" for each in (run, uninterrupted)]
    assert_equal(*map(optimizer, end))
    assert run.lr_scheduler.state_dict() == uninterrupted.lr_scheduler.state_dict()


@pytest.mark.parametrize("logging_steps", [500, 4])
def test_the_loss_at_the_end_is_that_of_the_whole_run(tmp_path: Path, logging_steps: int) -> None:
    expected = trainer(tmp_path / "whole", logging_steps=logging_steps).train().training_loss
    interrupted(tmp_path, 12, logging_steps=logging_steps)

    run = trainer(tmp_path, logging_steps=logging_steps)

    assert run.train(resume_from_checkpoint=True).training_loss == expected


def test_a_checkpoint_is_complete_and_has_no_pickles(uninterrupted: Any) -> None:
    folder = Path(uninterrupted.args.output_dir)

    assert steps(folder) == [5, 10, 15, 20]
    for path in folder.iterdir():
        assert verify_folder(path) == []
    newest = folder / "checkpoint-20"
    assert sorted(str(path.relative_to(newest)) for path in newest.rglob("*") if path.is_file()) == [
        *("config.json", "generation_config.json", "model.safetensors", "tensorkeep.manifest.json"),
        *("trainer_state.json", "training_args.json"),
        *("training_state/optimizer.safetensors", "training_state/processes.safetensors"),
    ]
    assert not [path for path in folder.rglob("*") if path.is_file() and path.read_bytes()[:2] == b"PK"]
    assert json.loads((newest / "training_args.json").read_text())["learning_rate"] == 0.01
    assert all(tensorkeep.verify(path).is_whole for path in newest.rglob("*.safetensors"))
    loaded = from_pretrained(transformers.AutoModelForCausalLM, newest, verify="require")
    assert_equal(weights(loaded), weights(uninterrupted.model))


@pytest.mark.parametrize("damage", ["empty", "killed", "bit", "gone"])
def test_a_damaged_checkpoint_never_wins(tmp_path: Path, uninterrupted: Any, damage: str) -> None:
    shutil.copytree(uninterrupted.args.output_dir, tmp_path, dirs_exist_ok=True)
    newest = tmp_path / "checkpoint-20"
    if damage == "empty":  # as transformers leaves it
        shutil.rmtree(newest)
        newest.mkdir()
    elif damage == "killed":
        (newest / "tensorkeep.manifest.json").unlink()
        (newest / "trainer_state.json").unlink()
    elif damage == "gone":
        (newest / "training_state" / "processes.safetensors").unlink()
    else:
        path = newest / "training_state" / "optimizer.safetensors"
        data = bytearray(path.read_bytes())
        data[-100] ^= 4
        path.write_bytes(data)

    with pytest.warns(DamagedCheckpointWarning, match=r"checkpoint-20 is not whole.*older checkpoint"):
        assert get_last_checkpoint(tmp_path) == str(tmp_path / "checkpoint-15")
    with pytest.raises((IntegrityError, SourceMissingError), match="checkpoint-20"):
        trainer(tmp_path).train(resume_from_checkpoint=str(newest))
    with pytest.warns(DamagedCheckpointWarning):
        run = resumed(tmp_path)

    assert_equal(weights(run.model), weights(uninterrupted.model))
    assert get_last_checkpoint(tmp_path) == str(newest), "it was saved anew"


def test_no_checkpoint_is_not_taken_for_one(tmp_path: Path, uninterrupted: Any) -> None:
    with pytest.raises(SourceMissingError, match="no whole checkpoint"):
        trainer(tmp_path).train(resume_from_checkpoint=True)
    with pytest.raises(SourceMissingError, match="checkpoint-7"):
        trainer(tmp_path).train(resume_from_checkpoint=str(tmp_path / "checkpoint-7"))
    with pytest.raises(SourceMissingError):
        get_last_checkpoint(tmp_path / "nothing")
    (tmp_path / "checkpoint-x").mkdir()
    (tmp_path / "checkpoint-9").write_text("a file")
    assert get_last_checkpoint(tmp_path) is None


@pytest.mark.parametrize("at", [12, 9], ids=["within an epoch", "after one"])
def test_a_run_of_transformers_goes_on(tmp_path: Path, uninterrupted: Any, at: int) -> None:
    settings = {"save_steps": 2 if at == 12 else 8}
    interrupted(tmp_path, at, cls=transformers.Trainer, **settings)
    (tmp_path / "checkpoint-14").mkdir()
    newest = max(steps(tmp_path)[:-1])

    with pytest.warns(DamagedCheckpointWarning, match=r"checkpoint-14.*expected trainer_state\.json"):
        assert get_last_checkpoint(tmp_path) == str(tmp_path / f"checkpoint-{newest}")
    with pytest.warns(DamagedCheckpointWarning):
        run = resumed(tmp_path, **settings)

    assert_equal(weights(run.model), weights(uninterrupted.model))
    assert log(run)[-2] == log(uninterrupted)[-2]  # the line after it is of the steps since


@pytest.mark.parametrize("file", ["optimizer.pt", "rng_state.pth", "model.safetensors", "trainer_state.json"])
def test_what_transformers_left_is_looked_through(tmp_path: Path, file: str) -> None:
    interrupted(tmp_path, 11, cls=transformers.Trainer)
    path = tmp_path / "checkpoint-10" / file
    with path.open("rb+") as opened:
        opened.truncate(path.stat().st_size // 2)

    with pytest.warns(DamagedCheckpointWarning, match="checkpoint-10 is not whole"):
        assert get_last_checkpoint(tmp_path, verify=False) == str(tmp_path / "checkpoint-5")


class Payload:
    def __reduce__(self) -> Any:
        return os.system, ("touch ran",)


def test_nothing_in_old_files_is_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    interrupted(tmp_path, 11, cls=transformers.Trainer)
    for step, name in ((10, "optimizer.pt"), (10, "training_args.bin"), (5, "pytorch_model.bin")):
        torch.save({"state": {}, "param_groups": [Payload()]}, tmp_path / f"checkpoint-{step}" / name)
    (tmp_path / "checkpoint-5" / "model.safetensors").unlink()

    for step in (5, 10):
        with pytest.raises(tensorkeep.errors.UnsafeError, match="system"):
            trainer(tmp_path).train(resume_from_checkpoint=str(tmp_path / f"checkpoint-{step}"))
    with pytest.warns(DamagedCheckpointWarning, match="system"):
        assert get_last_checkpoint(tmp_path) is None

    assert not (tmp_path / "ran").exists()


def test_a_best_checkpoint_is_found_where_the_run_was_moved_to(tmp_path: Path) -> None:
    settings = {"eval_strategy": "steps", "eval_steps": 5, "metric_for_best_model": "loss", "greater_is_better": True}
    interrupted(tmp_path / "there", 16, load_best_model_at_end=True, learning_rate=0.0, **settings)
    (tmp_path / "there").rename(tmp_path / "here")

    run = resumed(tmp_path / "here", load_best_model_at_end=True, learning_rate=0.0, **settings)

    assert run.state.best_model_checkpoint == str(tmp_path / "here" / "checkpoint-5")


def test_files_of_transformers_do_not_stay_in_a_checkpoint_that_is_saved_anew(tmp_path: Path) -> None:
    trainer(tmp_path, cls=transformers.Trainer).train()
    (tmp_path / "checkpoint-20" / "notes.txt").write_text("mine")
    (tmp_path / "checkpoint-20" / "model.safetensors.index.json").write_text("{}")

    trainer(tmp_path).train(resume_from_checkpoint=str(tmp_path / "checkpoint-15"))

    found = {path.name for path in (tmp_path / "checkpoint-20").iterdir()}
    assert not found & {"optimizer.pt", "scheduler.pt", "rng_state.pth", "training_args.bin"}
    assert "model.safetensors.index.json" not in found
    assert found > {"notes.txt", "training_state", "model.safetensors"}
    assert verify_folder(tmp_path / "checkpoint-20") == []


def test_the_limit_of_checkpoints_and_the_best_of_them(tmp_path: Path) -> None:
    settings = {
        "save_total_limit": 2,
        "eval_strategy": "steps",
        "eval_steps": 2,
        "save_steps": 2,
        "load_best_model_at_end": True,
        "metric_for_best_model": "loss",
        "greater_is_better": True,  # so that an early one is the best
        "learning_rate": 0.05,
    }
    run = trainer(tmp_path, **settings)
    run.train()

    best = max((line for line in log(run) if "eval_loss" in line), key=lambda line: line["eval_loss"])["step"]
    assert best < 10, "or the test shows nothing"
    assert steps(tmp_path) == [best, 20]
    assert run.state.best_model_checkpoint == str(tmp_path / f"checkpoint-{best}")
    assert_equal(weights(run.model), weights(from_pretrained(type(run.model), tmp_path / f"checkpoint-{best}")))
    for step in (best, 20):
        state = json.loads((tmp_path / f"checkpoint-{step}" / "trainer_state.json").read_text())
        assert state["best_model_checkpoint"] == str(tmp_path / f"checkpoint-{best}")
        assert verify_folder(tmp_path / f"checkpoint-{step}") == []


def test_a_best_model_that_is_damaged_is_not_loaded(tmp_path: Path) -> None:
    class Damage(transformers.TrainerCallback):
        def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            with (tmp_path / "checkpoint-5" / "model.safetensors").open("rb+") as file:
                file.seek(-20, os.SEEK_END)
                file.write(b"damage")

    settings = {"eval_strategy": "steps", "eval_steps": 5, "load_best_model_at_end": True, "greater_is_better": True}
    run = trainer(tmp_path, callbacks=[Damage()], metric_for_best_model="loss", **settings)

    with pytest.raises(IntegrityError, match="checkpoint-5"):
        run.train()


def test_saving_only_the_best(tmp_path: Path) -> None:
    settings = {"save_strategy": "best", "eval_strategy": "steps", "eval_steps": 4, "metric_for_best_model": "loss"}
    run = trainer(tmp_path, load_best_model_at_end=True, **settings)
    run.train()

    best = Path(run.state.best_model_checkpoint)
    assert best.parent == tmp_path
    assert all(verify_folder(path) == [] for path in tmp_path.iterdir())
    assert_equal(weights(run.model), weights(from_pretrained(type(run.model), best)))


def test_a_model_alone_is_no_place_to_go_on_from(tmp_path: Path) -> None:
    interrupted(tmp_path, 11, save_only_model=True)

    assert not (tmp_path / "checkpoint-10" / "training_state").exists()
    assert get_last_checkpoint(tmp_path) == str(tmp_path / "checkpoint-10")
    with pytest.raises(SourceMissingError, match="has only the model"):
        trainer(tmp_path).train(resume_from_checkpoint=True)


def test_checkpoints_that_are_damaged_stay_and_do_not_count(tmp_path: Path) -> None:
    interrupted(tmp_path, 16, save_total_limit=3)
    (tmp_path / "checkpoint-10" / "config.json").unlink()
    (tmp_path / ".checkpoint-1.tensorkeep-removed").mkdir()

    resumed(tmp_path, save_total_limit=2)

    assert steps(tmp_path) == [10, 15, 20]
    assert not (tmp_path / ".checkpoint-1.tensorkeep-removed").exists()


def test_callbacks_go_on_with_their_state(tmp_path: Path) -> None:
    settings = {
        "eval_strategy": "steps",
        "eval_steps": 2,
        "save_steps": 2,
        "metric_for_best_model": "loss",
        "load_best_model_at_end": True,
        "greater_is_better": True,
        "restore_callback_states_from_checkpoint": True,
    }

    def run(directory: Path, *others: Any) -> Any:
        return trainer(directory, callbacks=[transformers.EarlyStoppingCallback(4), *others], **settings)

    never_stopped = run(tmp_path / "one")
    never_stopped.train()
    with pytest.raises(Interrupted):
        run(tmp_path / "other", InterruptAt(7)).train()
    goes_on = run(tmp_path / "other")
    goes_on.train(resume_from_checkpoint=True)

    assert goes_on.state.global_step == never_stopped.state.global_step < 20


class TiedLayers(torch.nn.Module):
    """A model that is not of transformers, with layers that share their weights."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embedding = torch.nn.Embedding(101, 32)
        self.one, self.other = torch.nn.Linear(32, 32), torch.nn.Linear(32, 32)
        self.other.weight = self.one.weight
        self.dropout = torch.nn.Dropout(0.2)

    def forward(self, input_ids: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        hidden = self.other(self.dropout(self.one(self.embedding(input_ids)).tanh()))
        logits = hidden @ self.embedding.weight.T
        return {"loss": torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten()), "logits": logits}


def test_any_model_with_tied_layers_just_works(tmp_path: Path) -> None:
    plain = trainer(tmp_path / "plain", model=TiedLayers())
    plain.train()
    interrupted(tmp_path / "run", 12, model=TiedLayers())

    run = resumed(tmp_path / "run", model=TiedLayers())

    assert_equal(weights(run.model), weights(plain.model))
    assert run.model.one.weight is run.model.other.weight


class Recording(transformers.Trainer):
    """Somebody's Trainer, which saves more than others, in all the places where one can do that."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.n_losses = 0

    def compute_loss(self, *args: Any, **kwargs: Any) -> Any:
        self.n_losses += 1
        return super().compute_loss(*args, **kwargs)

    def _save(self, output_dir: str | None = None, state_dict: Any = None) -> None:
        super()._save(output_dir, state_dict)
        Path(output_dir or self.args.output_dir, "saved.txt").write_text("by _save")

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        super()._save_checkpoint(model, trial)
        folder = Path(self._get_output_dir(trial), f"checkpoint-{self.state.global_step}")
        (folder / "losses.json").write_text(json.dumps(self.n_losses))

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: Any = None) -> None:
        super()._load_from_checkpoint(resume_from_checkpoint, model)
        self.n_losses = json.loads(Path(resume_from_checkpoint, "losses.json").read_text())


class RecordingTrainer(Trainer, Recording):
    """What its user writes to have safe checkpoints."""


def test_a_trainer_of_ones_own(tmp_path: Path, uninterrupted: Any) -> None:
    interrupted(tmp_path, 12, cls=RecordingTrainer)

    run = resumed(tmp_path, cls=RecordingTrainer)

    assert_equal(weights(run.model), weights(uninterrupted.model))
    assert run.n_losses == 40
    assert verify_folder(tmp_path / "checkpoint-20") == []
    (tmp_path / "checkpoint-20" / "losses.json").write_text("41")
    assert [finding.shard for finding in verify_folder(tmp_path / "checkpoint-20")] == ["losses.json"]
    run.save_model(str(tmp_path / "end"))
    assert {"saved.txt", "model.safetensors", "training_args.json"} < {
        path.name for path in (tmp_path / "end").iterdir()
    }


def test_a_trainer_that_writes_past_the_save_is_told_so(tmp_path: Path) -> None:
    class Past(Trainer):
        def save_model(self, *args: Any, **kwargs: Any) -> None:
            super().save_model(*args, **kwargs)
            folder = Path(self.args.output_dir, f"checkpoint-{self.state.global_step}")
            folder.mkdir()
            (folder / "extra.json").write_text("{}")

    with pytest.raises(UnsupportedError, match=r"would be lost.*_get_output_dir"):
        trainer(tmp_path, cls=Past).train()


def test_save_model_changes_all_files_or_none(tmp_path: Path, uninterrupted: Any) -> None:
    directory = tmp_path / "model"
    uninterrupted.save_model(str(directory))
    before = {path.name: path.read_bytes() for path in directory.iterdir()}
    run = trainer(tmp_path / "run", model=gpt2(n_embd=64))

    class Broken:
        def save_pretrained(self, folder: str) -> None:
            raise OSError(28, "No space left on device")

    run.processing_class = Broken()
    with pytest.raises(TransportError, match="No space left") as caught:
        run.save_model(str(directory))

    assert caught.value.errno == 28
    assert {path.name: path.read_bytes() for path in directory.iterdir()} == before
    assert set(before) == {"config.json", "generation_config.json", "model.safetensors", "training_args.json"}
    run.processing_class = None
    run.save_model(str(directory))
    assert_equal(weights(transformers.AutoModelForCausalLM.from_pretrained(directory)), weights(run.model))


def test_a_state_that_is_no_data_ends_the_run_at_its_first_save(tmp_path: Path) -> None:
    run = trainer(tmp_path)
    run.create_optimizer()
    run.optimizer.param_groups[0]["hook"] = lambda: None

    with pytest.raises(StateError, match="hook"):
        run.train()

    assert run.state.global_step == 5
    assert list(tmp_path.iterdir()) == []


def test_a_save_that_fails_leaves_the_checkpoints_before(tmp_path: Path) -> None:
    run = trainer(tmp_path, callbacks=[])

    class Block(transformers.TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            if state.global_step == 10:
                (tmp_path / "checkpoint-10").write_text("a file")

    run.add_callback(Block)
    with pytest.raises(TransportError, match="checkpoint-10"):
        run.train()

    assert sorted(path.name for path in tmp_path.iterdir()) == ["checkpoint-10", "checkpoint-5"]
    assert verify_folder(tmp_path / "checkpoint-5") == []


def test_two_runs_that_save_one_checkpoint(tmp_path: Path) -> None:
    with save_folder(tmp_path / "checkpoint-5") as staging:
        Path(staging, "a").write_text("a")
        with pytest.raises(BusyError):
            trainer(tmp_path).train()

    assert [path.name for path in (tmp_path / "checkpoint-5").iterdir() if path.stat().st_size == 1] == ["a"]


def test_a_checkpoint_of_another_model_changes_nothing_silently(tmp_path: Path) -> None:
    interrupted(tmp_path, 6)
    bigger = gpt2(tie_word_embeddings=False)
    bigger.another = torch.nn.Linear(2, 2)

    with pytest.raises(StateDictMismatchError, match=r"lacks weights of GPT2LMHeadModel.*another\.bias"):
        resumed(tmp_path, model=bigger)


def test_runs_over_several_processes_of_one_model_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = trainer(tmp_path)
    monkeypatch.setattr(type(run.accelerator), "distributed_type", transformers.trainer.DistributedType.FSDP)

    with pytest.raises(UnsupportedError, match=r"each have the whole model.*found FSDP, on cpu"):
        run.train()


def test_other_random_generators_are_said_to_be_others(tmp_path: Path) -> None:
    interrupted(tmp_path, 6, cls=transformers.Trainer)
    (tmp_path / "checkpoint-5" / "rng_state.pth").unlink()

    with pytest.warns(UserWarning, match="random generators cannot be restored"):
        resumed(tmp_path)


def test_evaluation_and_prediction_are_those_of_transformers(uninterrupted: Any) -> None:
    assert uninterrupted.evaluate(Texts(4))["eval_loss"] > 0


@pytest.mark.parametrize("cls", [Trainer, transformers.Trainer])
def test_a_gradient_scaler_goes_on(tmp_path: Path, cls: Any) -> None:
    run = trainer(tmp_path, cls=cls, callbacks=[InterruptAt(6)])
    run.accelerator.scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    run.accelerator.scaler.scale(torch.ones(1))  # which makes its state
    with pytest.raises(Interrupted):
        run.train()

    run = trainer(tmp_path)
    run.accelerator.scaler = torch.amp.GradScaler("cpu", init_scale=2.0)
    run.train(resume_from_checkpoint=True)

    assert run.accelerator.scaler.get_scale() == 1024
    assert (tmp_path / "checkpoint-20" / "training_state" / "scaler.safetensors").exists()


def test_a_run_of_a_machine_with_more_devices(tmp_path: Path) -> None:
    interrupted(tmp_path, 6, cls=transformers.Trainer)
    path = tmp_path / "checkpoint-5" / "rng_state.pth"
    states = torch.load(path, weights_only=False)
    torch.save(states | {"cuda": [torch.zeros(16, dtype=torch.uint8)] * 9}, path)

    with pytest.warns(UserWarning, match="9 CUDA devices, where there are"):
        resumed(tmp_path)

    torch.save({"python": (3, (1, 2), None)}, path)
    with pytest.raises(StateDictMismatchError, match="not the states of random generators"):
        trainer(tmp_path).train(resume_from_checkpoint=str(tmp_path / "checkpoint-5"))


def test_states_of_processes_that_are_none(tmp_path: Path) -> None:
    interrupted(tmp_path, 6)
    (tmp_path / "checkpoint-5" / "tensorkeep.manifest.json").unlink()  # so that nothing says what was saved
    for state in ({"processes": [1]}, [1], {"processes": [{"rng": {"torch": 5}}]}):
        tensorkeep.save(state, tmp_path / "checkpoint-5" / "training_state" / "processes.safetensors")
        with pytest.raises(StateDictMismatchError):
            resumed(tmp_path)


class InShards(Trainer):
    """A Trainer that writes small files."""

    max_shard_size = "30kB"


def test_models_in_several_files(tmp_path: Path, uninterrupted: Any) -> None:
    interrupted(tmp_path, 12, cls=InShards)
    assert len(list((tmp_path / "checkpoint-10").glob("model-0*-of-0*.safetensors"))) > 3

    with (tmp_path / "checkpoint-10" / "model-00002-of-00005.safetensors").open("rb+") as file:
        file.seek(-7, os.SEEK_END)
        file.write(b"damage")
    with pytest.warns(DamagedCheckpointWarning, match="model-00002-of-00005"):
        run = resumed(tmp_path, cls=InShards)

    assert_equal(weights(run.model), weights(uninterrupted.model))

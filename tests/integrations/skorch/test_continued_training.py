"""`LoadInitState` brings back all that was saved at one time, or nothing; where there is nothing, training begins."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import skorch.callbacks
import torch
from skorch.callbacks import EarlyStopping, EpochScoring, LRScheduler

import tensorkeep
from tensorkeep.errors import IntegrityError, SourceMissingError, StateDictMismatchError, StateError, UnsupportedError
from tensorkeep.integrations.skorch import Checkpoint, LoadInitState, TrainEndCheckpoint, load_params, save_params
from tests.support.integrations.skorch.nets import X, Y, make_net, make_two, parts_of, same

PARTS = ["module", "criterion", "optimizer", "history", "training"]
FILES = {"module": "params.safetensors", "history": "history.json"}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty current directory."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def going_on(checkpoint: Any, *others: Any, **options: Any) -> Any:
    """Return a net that goes on with what a callback saved, and saves with it."""
    return make_net([checkpoint, LoadInitState(checkpoint), *others], **options)


def file_of(part: str) -> Path:
    return Path(FILES.get(part, f"{part}.safetensors"))


@pytest.mark.parametrize(
    "files", [{}, {"f_checkpoint": "all"}, {"f_params": "p{last_epoch[epoch]}"}, {"f_history": None}]
)
def test_where_there_is_nothing_training_begins(files: dict[str, Any]) -> None:
    net = going_on(Checkpoint(monitor=None, **files)).fit(X, Y)
    assert len(net.history) == 2

    again = going_on(Checkpoint(monitor=None, **files)).fit(X, Y)
    assert len(again.history) == (2 if "f_history" in files else 4)


def test_a_directory_may_be_missing_too(folder: Path) -> None:
    checkpoint = Checkpoint(dirname="not/there")
    make_net([LoadInitState(checkpoint)]).fit(X, Y)

    assert not list(folder.iterdir())


def test_it_loads_once(folder: Path) -> None:
    net = going_on(Checkpoint(monitor=lambda net: len(net.history) == 1)).fit(X, Y)
    net.partial_fit(X, Y)
    assert len(net.history) == 4

    net.fit(X, Y)  # as in skorch: a new beginning, which loads again
    assert len(net.history) == 1 + 2


@pytest.mark.parametrize("part", PARTS)
def test_a_missing_part_is_an_error_and_nothing_is_loaded(part: str) -> None:
    going_on(Checkpoint(monitor=None)).fit(X, Y)
    file_of(part).unlink()
    net = going_on(Checkpoint(monitor=None))
    argument = "f_params" if part == "module" else f"f_{part}"

    with pytest.raises(SourceMissingError, match=rf"missing: {part} .*{file_of(part)}.*{argument}=None") as raised:
        net.fit(X, Y)

    assert raised.value.path == str(file_of(part))
    assert same(parts_of(net), parts_of(make_net().initialize()))


def test_only_one_part_is_no_beginning_either() -> None:
    going_on(Checkpoint(monitor=None)).fit(X, Y)
    for part in PARTS[:-1]:
        file_of(part).unlink()

    with pytest.raises(SourceMissingError, match=r"found training\.safetensors"):
        going_on(Checkpoint(monitor=None)).fit(X, Y)


def test_a_missing_file_with_an_epoch_in_its_name_is_an_error() -> None:
    names = {"f_params": "p-{last_epoch[epoch]}"}
    going_on(Checkpoint(monitor=None, **names)).fit(X, Y)
    Path("p-2").unlink()

    with pytest.raises(SourceMissingError, match="p-2"):
        going_on(Checkpoint(monitor=None, **names)).fit(X, Y)
    Path("history.json").unlink()
    with pytest.raises(SourceMissingError, match="missing: history"):
        going_on(Checkpoint(monitor=None, **names)).fit(X, Y)


@pytest.mark.parametrize("part", PARTS)
def test_a_part_of_another_epoch_is_an_error_and_nothing_is_loaded(part: str) -> None:
    going_on(Checkpoint(monitor=None), epochs=1).fit(X, Y)
    shutil.copy(file_of(part), "kept")
    going_on(Checkpoint(monitor=None), epochs=1).fit(X, Y)
    shutil.copy("kept", file_of(part))
    net = going_on(Checkpoint(monitor=None))

    with pytest.raises(IntegrityError, match=r"not saved together.*load_params"):
        net.fit(X, Y)
    with pytest.raises(IntegrityError, match="not saved together"):
        load_params(net, checkpoint=Checkpoint())

    assert same(parts_of(net), parts_of(make_net().initialize()))


@pytest.mark.parametrize("part", ["module", "optimizer", "training"])
def test_a_changed_byte_is_an_error_and_nothing_is_loaded(part: str) -> None:
    going_on(Checkpoint(monitor=None)).fit(X, Y)
    data = bytearray(file_of(part).read_bytes())
    data[-2] ^= 4
    file_of(part).write_bytes(data)
    net = going_on(Checkpoint(monitor=None))

    with pytest.raises(IntegrityError, match=str(file_of(part))):
        net.fit(X, Y)

    assert same(parts_of(net), parts_of(make_net().initialize()))


def test_another_net_is_an_error_and_nothing_is_loaded() -> None:
    going_on(Checkpoint(monitor=None)).fit(X, Y)
    net = going_on(Checkpoint(monitor=None), module__width=9)
    state = torch.get_rng_state()

    with pytest.raises(StateDictMismatchError, match=r"module \(params\.safetensors\).*another shape"):
        net.fit(X, Y)

    assert not net.history
    assert not torch.equal(torch.get_rng_state(), state), "the module was made, and chance went on from there"


def test_a_run_that_failed_to_load_loads_when_it_is_mended() -> None:
    going_on(Checkpoint(monitor=None)).fit(X, Y)
    Path("params.safetensors").rename("elsewhere")
    net = going_on(Checkpoint(monitor=None))
    with pytest.raises(SourceMissingError):
        net.fit(X, Y)

    Path("elsewhere").rename("params.safetensors")
    net.partial_fit(X, Y)

    assert len(net.history) == 4


def test_the_best_score_is_remembered() -> None:
    """skorch's own forgets it, and then takes the first epoch for the best."""
    scores = [lambda: EpochScoring("f1", name="f1", lower_is_better=False)]
    net = going_on(Checkpoint(monitor=None), *(make() for make in scores), epochs=12, lr=0.1).fit(X, Y)
    before = min(net.history[:, "valid_loss"]), max(net.history[:, "f1"])
    for parameter in net.module_.parameters():
        parameter.data.zero_()  # much worse from here
    save_params(net, f_params="params.safetensors")
    checkpoint = Checkpoint(monitor=None)
    checkpoint.initialize().save_model(net)

    again = going_on(Checkpoint(monitor=None), *(make() for make in scores), epochs=1).fit(X, Y)

    assert again.history[-1, "valid_loss"] > before[0]
    assert not again.history[-1, "valid_loss_best"]
    assert again.history[-1, "f1"] < before[1]
    assert not again.history[-1, "f1_best"]


def test_the_end_of_training_is_gone_on_with() -> None:
    first = going_on(TrainEndCheckpoint(dirname="d")).fit(X, Y)
    second = going_on(TrainEndCheckpoint(dirname="d"), epochs=3)
    second.fit(X, Y)

    assert same(parts_of(second)["history"][:2], parts_of(first)["history"])
    assert len(second.history) == 5


def test_a_schedule_by_batches_knows_how_many_there_were() -> None:
    schedule = LRScheduler("StepLR", step_size=2, step_every="batch")
    checkpoint = Checkpoint(monitor=None)
    for n_fits in (1, 2):
        make_net([schedule, checkpoint, LoadInitState(checkpoint)]).fit(X, Y)
        assert schedule.batch_idx_ == n_fits * 6


def test_another_schedule_under_the_same_name_is_an_error() -> None:
    going_on(Checkpoint(monitor=None), LRScheduler("StepLR", step_size=1)).fit(X, Y)

    with pytest.raises(
        StateDictMismatchError, match=r"callback LRScheduler belongs to another.*ExponentialLR, found StepLR"
    ):
        going_on(Checkpoint(monitor=None), LRScheduler("ExponentialLR", gamma=0.5)).fit(X, Y)
    with pytest.warns(UserWarning, match="the state of LRScheduler, but the net has no callback of that name"):
        net = going_on(Checkpoint(monitor=None), ("new", LRScheduler("ExponentialLR", gamma=0.5))).fit(X, Y)

    assert len(net.history) == 4


def test_a_callback_that_needs_the_history_does_not_go_on_without() -> None:
    checkpoint = Checkpoint(monitor=None, f_history=None)
    schedule = ("schedule", LRScheduler("ExponentialLR", gamma=0.5))
    make_net([checkpoint, schedule], lr=1.0).fit(X, Y)
    net = make_net([LoadInitState(checkpoint), schedule], lr=1.0)
    with pytest.raises(StateDictMismatchError, match=r"schedule had not seen the end of the epoch.*after"):
        net.fit(X, Y)
    assert same(parts_of(net)["module"], parts_of(make_net().initialize())["module"])

    make_net([schedule, checkpoint], lr=1.0).fit(X, Y)
    net = make_net([LoadInitState(checkpoint), schedule], lr=1.0).fit(X, Y)
    assert net.history[:, "event_lr"] == [0.25, 0.125]


MALFORMED: dict[str, Any] = {
    "no dict": [1, 2],
    "unknown": {"more": 1},
    "behind": {"behind": 5},
    "trainable": {"trainable": {"module": ["no"]}},
    "callbacks": {"callbacks": {"EarlyStopping": 5}},
    "schedule": {"callbacks": {"LRScheduler": {"policy": "StepLR", "scheduler": 1, "batch_idx": 2}}},
    "patience": {"callbacks": {"EarlyStopping": {"misses_": "no"}}},
    "rng": {"rng": {"torch": torch.zeros(3)}},
    "rng of nobody": {"rng": {"dice": 1}},
}


@pytest.mark.parametrize("case", MALFORMED)
def test_a_malformed_file_of_the_training_is_an_error_and_nothing_is_loaded(case: str) -> None:
    others = [lambda: LRScheduler("StepLR", step_size=1), lambda: EarlyStopping(sink=lambda _: None)]
    going_on(Checkpoint(monitor=None), *(make() for make in others)).fit(X, Y)
    metadata = tensorkeep.open("training.safetensors").metadata
    whole = tensorkeep.load("training.safetensors")
    state = whole | MALFORMED[case] if isinstance(MALFORMED[case], dict) else MALFORMED[case]
    tensorkeep.save(state, "training.safetensors", metadata=metadata)
    net = going_on(Checkpoint(monitor=None), *(make() for make in others))

    with pytest.raises(StateDictMismatchError, match="Nothing was changed"):
        net.fit(X, Y)

    assert same(parts_of(net), parts_of(make_net().initialize()))


def test_a_schedule_with_code_in_its_state_is_an_error_when_it_is_saved() -> None:
    class Strange(torch.optim.lr_scheduler.StepLR):
        def state_dict(self) -> dict[str, Any]:
            return super().state_dict() | {"rule": lambda: 1}

    with pytest.raises(StateError, match=r"callbacks\.LRScheduler\.scheduler\.rule.*training\.safetensors"):
        going_on(Checkpoint(monitor=None), LRScheduler(Strange, step_size=1)).fit(X, Y)


def test_the_epoch_in_the_name_of_one_file_cannot_be_guessed() -> None:
    names = {"f_checkpoint": "all-{last_epoch[epoch]}"}
    going_on(Checkpoint(monitor=None, **names)).fit(X, Y)

    with pytest.raises(UnsupportedError, match=r"depends on the epoch.*all-\{last_epoch.*f_history"):
        going_on(Checkpoint(monitor=None, **names)).fit(X, Y)

    checkpoint = Checkpoint(monitor=None, f_history="log.json", **names)
    for n_epochs in (2, 4):
        Path("all-1").unlink(missing_ok=True)
        Path("all-2").unlink(missing_ok=True) if n_epochs == 2 else None
        assert len(going_on(checkpoint).fit(X, Y).history) == n_epochs


def test_parts_that_are_not_saved_are_left_alone() -> None:
    names = {"f_optimizer": None, "f_training": None}
    going_on(Checkpoint(monitor=None, **names)).fit(X, Y)
    again = going_on(Checkpoint(monitor=None, **names)).fit(X, Y)

    assert len(again.history) == 4
    assert {int(state["step"]) for state in parts_of(again)["optimizer"]["state"].values()} == {6}


def test_custom_parts_go_on() -> None:
    checkpoint = Checkpoint(monitor=None)
    first = make_two([checkpoint]).fit(X, Y)
    second = make_two([LoadInitState(checkpoint)], epochs=0).fit(X, Y)
    assert same(parts_of(second), parts_of(first))

    Path("teacher.safetensors").unlink()
    with pytest.raises(SourceMissingError, match="missing: teacher"):
        make_two([LoadInitState(checkpoint)]).fit(X, Y)


def test_callbacks_of_skorch_itself_are_none_of_ours() -> None:
    with pytest.raises(UnsupportedError, match=r"skorch\.callbacks\.training\.Checkpoint.*same arguments"):
        make_net([LoadInitState(skorch.callbacks.Checkpoint())]).fit(X, Y)
    with pytest.raises(UnsupportedError, match=r"skorch\.callbacks"):
        load_params(make_net(), checkpoint=skorch.callbacks.TrainEndCheckpoint())


def test_a_named_part_counts_more_than_the_callback() -> None:
    net = make_net([Checkpoint(monitor=None)]).fit(X, Y)
    other = make_net(epochs=5).fit(X, Y)
    save_params(other, f_params="other")

    loaded = make_net()
    load_params(loaded, checkpoint=Checkpoint(), f_params="other")

    assert same(parts_of(loaded), parts_of(net) | {"module": parts_of(other)["module"]})
    Path("params.safetensors").unlink()
    load_params(loaded, checkpoint=Checkpoint(), f_params="other")


def test_nothing_there_is_an_error_where_it_is_asked_for() -> None:
    with pytest.raises(SourceMissingError, match="nothing was saved there yet"):
        load_params(make_net(), checkpoint=Checkpoint())


def test_what_a_killed_save_had_committed_is_finished(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tensorkeep.transport.atomic._staging import Staging

    going_on(Checkpoint(monitor=None), epochs=1).fit(X, Y)
    second = going_on(Checkpoint(monitor=None), epochs=1)
    with monkeypatch.context() as dying:
        dying.setattr(Staging, "replay", lambda *_, **__: None)
        dying.setattr(Staging, "drop", lambda *_: None)
        second.fit(X, Y)
    assert folder.joinpath(".skorch.tensorkeep-staging", "commit.json").exists()

    loaded = make_net()
    load_params(loaded, checkpoint=Checkpoint())

    assert same(parts_of(loaded), parts_of(second))
    assert not folder.joinpath(".skorch.tensorkeep-staging").exists()
    assert tensorkeep.verify("params.safetensors").is_whole

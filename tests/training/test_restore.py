"""What `restore` brings back, and that nothing was changed where something does not fit."""

from __future__ import annotations

import enum
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import tensorkeep
from tensorkeep.errors import (
    FormatError,
    IntegrityError,
    SourceMissingError,
    StateDictMismatchError,
    StateError,
    UnsafeError,
    UnsupportedError,
)
from tensorkeep.torch import capture, restore
from tests.training.test_capture import Counter, Wrapped


class Phase(enum.Enum):
    WARM = 1


class WithPhase(Counter):
    """An object whose state is more than plain data."""

    def state_dict(self) -> dict[str, Any]:
        return {"n_seen": Phase.WARM}


class Objects:
    """The objects of a run, after `n_steps` steps."""

    def __init__(self, seed: int, n_steps: int = 2) -> None:
        torch.manual_seed(seed)
        self.model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Dropout())
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=0.1 + seed)
        self.scheduler = torch.optim.lr_scheduler.StepLR(self.optimizer, 2 + seed)
        self.scaler = torch.amp.GradScaler("cpu", init_scale=2.0**seed)
        for _ in range(n_steps):
            self.model(torch.rand(5, 3)).sum().backward()
            self.optimizer.step()
            self.scheduler.step()

    @property
    def parts(self) -> dict[str, Any]:
        return dict(vars(self))

    def bits(self) -> list[Any]:
        """Everything that can change, tensors as their bytes."""
        return [
            {name: tensor.numpy().tobytes() for name, tensor in self.model.state_dict().items()},
            [[(key, _plain(item)) for key, item in state.items()] for state in self.optimizer.state.values()],
            [{key: item for key, item in g.items() if key != "params"} for g in self.optimizer.param_groups],
            self.scheduler.state_dict(),
            self.scaler.state_dict(),
            random.getstate(),
            str(np.random.get_state()),
            torch.get_rng_state().numpy().tobytes(),
        ]


def _plain(value: Any) -> Any:
    return value.numpy().tobytes() if isinstance(value, torch.Tensor) else value


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    path = tmp_path / "state.safetensors"
    tensorkeep.save(capture(**Objects(1).parts, step=2, config={"name": "a"}), path)
    return path


def _as_file(path: Path, tmp_path: Path) -> Any:
    return path


def _as_directory(path: Path, tmp_path: Path) -> Any:
    tensorkeep.save_checkpoint(tensorkeep.load(path), tmp_path / "shards", max_shard_size=200)
    assert len(list((tmp_path / "shards").iterdir())) > 3
    return tmp_path / "shards"


def _as_bytes(path: Path, tmp_path: Path) -> Any:
    return path.read_bytes()


def _as_loaded(path: Path, tmp_path: Path) -> Any:
    return tensorkeep.load(path)


@pytest.mark.parametrize("form", [_as_file, _as_directory, _as_bytes, _as_loaded])
def test_everything_comes_back(saved: Path, tmp_path: Path, form: Callable[[Path, Path], Any]) -> None:
    random.seed(5)
    np.random.seed(5)
    original = Objects(1)
    tensorkeep.save(capture(**original.parts, step=2, config={"name": "a"}), saved)
    expected = original.bits()
    other = Objects(2, n_steps=3)
    random.random(), np.random.normal()
    assert other.bits() != expected

    rest = restore(form(saved, tmp_path), **other.parts)

    assert other.bits() == expected
    assert rest == {"step": 2, "config": {"name": "a"}}


def test_parameters_stay_where_they_are(saved: Path) -> None:
    run = Objects(2)
    weight, address = run.model[0].weight, run.model[0].weight.data_ptr()

    restore(saved, **run.parts)

    assert run.model[0].weight is weight
    assert weight.data_ptr() == address


def test_the_optimizer_goes_on_in_memory_of_its_own(saved: Path) -> None:
    loaded = tensorkeep.load(saved)
    run = Objects(2)

    restore(loaded, **run.parts)

    theirs = loaded["optimizer"]["state"][0]["exp_avg"]
    ours = run.optimizer.state[run.model[0].weight]["exp_avg"]
    assert torch.equal(ours, theirs)
    assert ours.untyped_storage().data_ptr() != theirs.untyped_storage().data_ptr()


def test_parts_that_are_not_wanted_are_neither_changed_nor_returned(saved: Path) -> None:
    run = Objects(2)
    before = run.bits()

    assert restore(saved, rng=False) == {"step": 2, "config": {"name": "a"}}
    assert run.bits() == before

    restore(saved, model=run.model, rng=False)
    after = run.bits()
    assert after[0] != before[0]
    assert after[1:] == before[1:]


def test_bytes_of_parts_that_are_not_wanted_are_not_read(tmp_path: Path) -> None:
    run = Objects(1)
    path = tmp_path / "state.safetensors"
    tensorkeep.save(capture(**run.parts, average=run.model), path)
    with tensorkeep.open(path) as file:
        start = file.span_of("optimizer.state.0.exp_avg").start
    with path.open("rb+") as damaged:
        damaged.seek(start)
        damaged.write(b"\xff" * 16)
    model = Objects(2).model

    restore(path, model=model)

    assert torch.equal(model[0].weight, run.model[0].weight)


@pytest.mark.parametrize("several", [dict, list, tuple])
def test_several_objects_come_back(tmp_path: Path, several: type) -> None:
    def objects(seed: int) -> Any:
        runs = {"g": Objects(seed).model, "d": nn.Linear(seed, 1)}
        runs["d"] = nn.Linear(2, 1)
        return runs if several is dict else several(runs.values())

    first, second = objects(1), objects(2)
    path = tmp_path / "gan.safetensors"
    tensorkeep.save(capture(model=first), path)

    restore(path, model=second)

    pairs = zip(first.values(), second.values(), strict=True) if several is dict else zip(first, second, strict=True)
    for before, after in pairs:
        for name, tensor in before.state_dict().items():
            assert torch.equal(after.state_dict()[name], tensor)


def test_extra_objects_get_their_states(tmp_path: Path) -> None:
    counter, average = Counter(), nn.Linear(2, 1)
    counter.n_seen = 4
    generators = {
        "t": torch.Generator().manual_seed(1),
        "n": np.random.default_rng(1),
        "o": np.random.RandomState(1),
        "p": random.Random(1),
    }
    tensorkeep.save(capture(loader=counter, average=average, **generators, step=3), tmp_path / "s.safetensors")
    expected = _drawn(generators)
    new_counter, new_average = Counter(), nn.Linear(2, 1)

    rest = restore(tmp_path / "s.safetensors", loader=new_counter, average=new_average, **generators)

    assert new_counter.n_seen == 4
    assert torch.equal(new_average.weight, average.weight)
    assert _drawn(generators) == expected
    assert rest == {"step": 3}


def _drawn(generators: dict[str, Any]) -> list[float]:
    """Draw from generators, and from one that is spawned."""
    return [
        torch.rand((), generator=generators["t"]).item(),
        generators["n"].random(),
        generators["n"].spawn(1)[0].random(),
        generators["o"].normal(),
        generators["o"].normal(),
        generators["p"].gauss(),
        generators["p"].gauss(),
    ]


def test_data_may_stand_under_any_key(tmp_path: Path) -> None:
    data = {("fold", 1): 5, None: [3], True: "yes", 7: torch.ones(2), Phase.WARM: 0.5, "a.b": b"\xff", "\ud800": 1}
    model = nn.Linear(2, 2)
    tensorkeep.save(capture(model=model, rng=False) | data, tmp_path / "state.safetensors")

    rest = restore(tmp_path / "state.safetensors", model=model, rng=False, classes=[Phase])

    assert torch.equal(rest.pop(7), data.pop(7))
    assert rest == data


def test_containers_that_stand_in_many_places_are_copied_once() -> None:
    n_seen: list[Any] = []
    for _ in range(60):
        n_seen = [n_seen, n_seen]
    loader = Counter()

    restore({"loader": {"n_seen": n_seen}}, loader=loader, rng=False)

    assert loader.n_seen is not n_seen
    assert loader.n_seen[0] is loader.n_seen[1]


def test_what_is_no_object_of_the_run_is_returned(tmp_path: Path) -> None:
    tensorkeep.save(capture(sampler=np.random.default_rng(5), weights=torch.arange(3)), tmp_path / "s.safetensors")

    rest = restore(tmp_path / "s.safetensors")

    assert rest["sampler"].random() == np.random.default_rng(5).random()
    assert torch.equal(rest["weights"], torch.arange(3))


@pytest.mark.parametrize(
    "wrap", [torch.compile, nn.DataParallel, lambda model: torch.compile(nn.DataParallel(model))]
)
@pytest.mark.parametrize("capture_is_used", [True, False])
def test_checkpoints_of_wrapped_models_fit_bare_ones_and_the_other_way(
    tmp_path: Path, wrap: Any, capture_is_used: bool
) -> None:
    bare, other = (nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2)) for _ in range(2))
    wrapped = wrap(bare)
    path = tmp_path / "s.safetensors"
    state = capture(model=wrapped) if capture_is_used else {"model": wrapped.state_dict()}
    tensorkeep.save(state, path)

    restore(path, model=other, rng=False)

    assert torch.equal(other[0].weight, bare[0].weight)
    third = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    tensorkeep.save(capture(model=other), path)
    restore(path, model=wrap(third))
    assert torch.equal(third[0].weight, bare[0].weight)


def test_a_compiled_module_within_a_model_takes_plain_names_and_its_own(tmp_path: Path) -> None:
    plain, compiled = Wrapped(nn.BatchNorm1d(3)), Wrapped(torch.compile(nn.BatchNorm1d(3)))
    with torch.no_grad():
        plain.norm.weight.fill_(2.0)
    path = tmp_path / "s.safetensors"
    tensorkeep.save(capture(model=plain), path)

    restore(path, model=compiled)

    assert compiled.norm.weight.tolist() == [2.0, 2.0, 2.0]
    tensorkeep.save({"model": compiled.state_dict()}, path)
    other = Wrapped(torch.compile(nn.BatchNorm1d(3)))
    restore(path, model=other, rng=False)
    assert other.norm.weight.tolist() == [2.0, 2.0, 2.0]


def test_tied_weights_stay_tied(tmp_path: Path) -> None:
    def tied() -> nn.Module:
        model = nn.ModuleDict({"embed": nn.Embedding(5, 3), "head": nn.Linear(3, 5, bias=False)})
        model["head"].weight = model["embed"].weight
        return model

    first, second = tied(), tied()
    tensorkeep.save(capture(model=first), tmp_path / "s.safetensors")

    restore(tmp_path / "s.safetensors", model=second)

    assert torch.equal(second["head"].weight, first["embed"].weight)
    assert second["head"].weight is second["embed"].weight


def _misfits() -> dict[str, tuple[Callable[[Objects], dict[str, Any]], str]]:
    return {
        "another shape": (
            lambda run: run.parts | {"model": nn.Sequential(nn.Linear(3, 5), nn.BatchNorm1d(5))},
            r"model does not fit Sequential: .* of another shape: `0\.weight` \[5, 3\] in the model, \[4, 3\] in the",
        ),
        "other names": (
            lambda run: run.parts | {"model": nn.Sequential(nn.Linear(3, 4), nn.Linear(3, 4), nn.ReLU())},
            r"model does not fit Sequential: 3 unexpected: `1\.running_mean`",
        ),
        "other groups": (
            lambda run: run.parts | {"optimizer": torch.optim.AdamW(run.model[0].parameters())},
            r"optimizer does not fit AdamW: .* expected \[2\], found \[4\]",
        ),
        "no state of an optimizer": (
            lambda run: {"model": run.model, "scaler": torch.optim.SGD(run.model.parameters())},
            "scaler is not the state of an optimizer",
        ),
        "several for one": (lambda run: run.parts | {"model": [run.model]}, "model has other objects"),
        "a part that is not there": (
            lambda run: run.parts | {"average": run.model},
            "the checkpoint has no average .*found model, optimizer, scheduler, scaler, rng, step, config",
        ),
        "a generator for data": (
            lambda run: run.parts | {"step": torch.Generator()},
            "step is not a state of this random generator: expected a tensor of bytes, found int",
        ),
    }


@pytest.mark.parametrize("misfit", _misfits())
def test_nothing_is_changed_where_something_does_not_fit(saved: Path, misfit: str) -> None:
    make, message = _misfits()[misfit]
    run = Objects(2)
    parts = make(run)
    before = run.bits()

    with pytest.raises(StateDictMismatchError, match=message):
        restore(saved, **parts)

    assert run.bits() == before


def test_data_is_no_object_to_restore(saved: Path) -> None:
    run = Objects(2)
    before = run.bits()

    with pytest.raises(StateError, match=r"cannot load a state into step.*found builtins\.int"):
        restore(saved, **run.parts, step=0)

    assert run.bits() == before


def test_names_may_differ_where_that_is_asked_for(saved: Path) -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.Identity(), nn.Linear(2, 2))

    restore(saved, model=model, strict=False)

    assert torch.equal(model[0].weight, tensorkeep.load(saved)["model"]["0.weight"])
    with pytest.raises(StateDictMismatchError) as caught:
        restore(saved, model=model)
    assert caught.value.missing == ("2.weight", "2.bias")
    assert caught.value.unexpected[0] == "1.weight"


def test_a_model_without_memory_is_refused(saved: Path) -> None:
    with torch.device("meta"):
        model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))

    with pytest.raises(UnsupportedError, match=r"`0\.weight` of model has no data"):
        restore(saved, model=model)


def test_the_counter_of_a_normalization_may_be_missing() -> None:
    state = {"model": nn.BatchNorm1d(3).state_dict()}
    del state["model"]["num_batches_tracked"]
    state["model"]._metadata[""]["version"] = 1

    assert restore(state, model=nn.BatchNorm1d(3), rng=False) == {}


def test_modules_that_load_in_their_own_way_do_so() -> None:
    class Renaming(nn.Linear):
        def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
            state_dict[f"{prefix}weight"] = state_dict.pop(f"{prefix}kernel")
            super()._load_from_state_dict(state_dict, prefix, *args)

    model = Renaming(2, 1)

    restore({"model": {"kernel": torch.ones(1, 2), "bias": torch.zeros(1)}}, model=model, rng=False)

    assert model.weight.tolist() == [[1.0, 1.0]]


def test_a_disabled_scaler_has_no_state_for_an_enabled_one(tmp_path: Path) -> None:
    path = tmp_path / "s.safetensors"
    tensorkeep.save(capture(scaler=torch.amp.GradScaler("cpu", enabled=False)), path)

    with pytest.raises(StateDictMismatchError, match="scaler was disabled when it was saved"):
        restore(path, scaler=torch.amp.GradScaler("cpu"))

    assert restore(path, scaler=torch.amp.GradScaler("cpu", enabled=False)) == {}


def test_objects_of_other_classes_are_made_only_if_they_are_passed(tmp_path: Path) -> None:
    path = tmp_path / "s.safetensors"
    tensorkeep.save(capture(loader=WithPhase()), path)
    counter = Counter()

    with pytest.raises(UnsupportedError, match=r"`loader\.n_seen` was saved as an object.*Phase.*Pass its class"):
        restore(path, loader=counter)
    assert counter.n_seen == 0

    restore(path, loader=counter, classes=[Phase])
    assert counter.n_seen is Phase.WARM


def _words(position: int, n_words: int = 624) -> dict[str, Any]:
    return {"version": 3, "words": np.array([1] * n_words + [position]), "gauss": None}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"python": random.getstate()}, r"rng\.python is not a .* expected a dict with version, words and gauss"),
        ({"python": _words(0, 10)}, r"rng\.python is not a state"),
        ({"python": _words(10**6)}, r"rng\.python is not a state"),
        ({"python": _words(-1)}, r"rng\.python is not a state"),
        ({"torch": torch.zeros(10, dtype=torch.uint8)}, r"rng\.torch is not a state"),
        ({"torch": "none"}, r"rng\.torch is not a .*: expected a tensor of bytes, found str\. .*rng=False"),
        ({"numpy": ("MT19937", np.zeros(624, "u4"), 10**6, 0, 0.0)}, r"rng\.numpy is not a .* found tuple"),
        (
            {"numpy": np.random.RandomState(np.random.PCG64(1))},
            r"rng\.numpy is not a .* expected MT19937, found PCG64",
        ),
        ({"cuda": [torch.zeros(16, dtype=torch.uint8)] * 99}, r"rng\.cuda is not a .*CUDA devices, found 99"),
        ({"abacus": 1}, "rng does not hold states of random generators"),
    ],
)
def test_states_of_generators_are_tried_before_any_is_set(changes: dict[str, Any], message: str) -> None:
    state = capture(**Objects(1).parts)
    state["rng"] |= changes
    run = Objects(2)
    before = run.bits()

    with pytest.raises(StateDictMismatchError, match=message):
        restore(state, **run.parts)

    assert run.bits() == before


def test_the_layout_of_others_is_understood(tmp_path: Path) -> None:
    run = Objects(1)
    path = tmp_path / "epoch-3.pt"
    torch.save(
        {
            "epoch": 3,
            "model_state_dict": nn.DataParallel(run.model).state_dict(),
            "optimizer_state_dict": run.optimizer.state_dict(),
            "lr_scheduler": run.scheduler.state_dict(),
            "scaler_state_dict": run.scaler.state_dict(),
        },
        path,
    )
    other = Objects(2)

    rest = restore(path, **other.parts, rng=False)

    assert other.bits()[:5] == run.bits()[:5]
    assert rest == {"epoch": 3}
    with pytest.raises(StateDictMismatchError, match=r"has no rng .*found epoch, model_state_dict.*Pass rng=False"):
        restore(path, **other.parts)


def test_nothing_of_a_pickle_is_run(tmp_path: Path) -> None:
    path = tmp_path / "evil.pt"
    torch.save({"model": nn.Linear(1, 1).state_dict(), "scheduler": {"hook": Evil()}}, path)
    model = nn.Linear(1, 1)

    with pytest.raises(UnsafeError):
        restore(path, model=model, rng=False)

    torch.save({"model": nn.Linear(1, 1).state_dict(), "scheduler": {"hook": Phase.WARM}}, path)
    scheduler = Counter()
    with pytest.raises(UnsupportedError, match=r"`scheduler\.hook` was saved as an object"):
        restore(path, scheduler=scheduler, rng=False)


class Evil:
    def __reduce__(self) -> Any:
        import os

        return os.system, ("false",)


def test_a_file_of_bare_tensors_is_no_state(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    tensorkeep.save(nn.Linear(2, 1).state_dict(), path)

    with pytest.raises(StateDictMismatchError, match=r"the checkpoint has no model .*Use load_into") as caught:
        restore(path, model=nn.Linear(2, 1), rng=False)

    assert caught.value.missing == ("model",)


def test_a_list_is_no_state(tmp_path: Path) -> None:
    tensorkeep.save([torch.ones(2)], tmp_path / "s.safetensors")

    with pytest.raises(StateDictMismatchError, match=r"is not a training state.*found list"):
        restore(tmp_path / "s.safetensors", rng=False)


def test_unreadable_checkpoints_are_refused(saved: Path, tmp_path: Path) -> None:
    run = Objects(2)
    before = run.bits()

    with pytest.raises(SourceMissingError):
        restore(tmp_path / "none.safetensors", **run.parts)
    saved.write_bytes(saved.read_bytes()[:-10])
    with pytest.raises((FormatError, IntegrityError)):
        restore(saved, **run.parts)

    assert run.bits() == before


def test_tied_weights_that_were_saved_apart_are_refused_where_they_differ(tmp_path: Path) -> None:
    def model(tied: bool) -> nn.Module:
        made = nn.ModuleDict({"embed": nn.Embedding(5, 3), "head": nn.Linear(3, 5, bias=False)})
        if tied:
            made["head"].weight = made["embed"].weight
        return made

    path = tmp_path / "s.safetensors"
    apart, target = model(tied=False), model(tied=True)
    tensorkeep.save(capture(model=apart), path)
    before = target["head"].weight.detach().clone()

    with pytest.raises(StateDictMismatchError, match=r"ties `embed\.weight` to `head\.weight`") as caught:
        restore(path, model=target)
    assert torch.equal(target["head"].weight, before)
    assert caught.value.unexpected == ("embed.weight",)

    restore(path, model=target, strict=False)
    assert torch.equal(target["embed"].weight, apart["head"].weight)

    with torch.no_grad():
        apart["head"].weight.copy_(apart["embed"].weight.fill_(float("nan")))
    tensorkeep.save(capture(model=apart), path)
    restore(path, model=target)
    assert target["embed"].weight.isnan().all()


def test_data_under_names_that_others_have_for_parts_come_back(tmp_path: Path) -> None:
    path = tmp_path / "s.safetensors"
    model = nn.Linear(2, 1)
    data = {"lr_scheduler": "cosine", "state_dict": {"a": 1}, "model_state_dict": torch.ones(2)}
    tensorkeep.save(capture(model=model, **data), path)

    rest = restore(path, model=model)

    assert rest.keys() == data.keys()
    assert rest["lr_scheduler"] == "cosine"
    assert restore(path).keys() == data.keys(), "parts that capture names are left out as ever"
    assert restore(path, rng=False, optimizer=None).keys() == data.keys()


def test_an_exception_of_an_object_says_what_was_changed_before(saved: Path) -> None:
    class Refusing(Counter):
        def load_state_dict(self, state: dict[str, Any]) -> None:
            raise KeyError("epoch")

    run = Objects(2)
    state = tensorkeep.load(saved) | {"loader": {"n_seen": 1}, "average": nn.Linear(1, 1).state_dict()}

    with pytest.raises(KeyError) as caught:
        restore(state, **run.parts, loader=Refusing(), average=nn.Linear(1, 1))

    assert caught.value.__notes__ == [
        "restore changed model, optimizer, scheduler, scaler before this error, and perhaps part of loader"
    ]


def test_a_store_is_not_one_state(saved: Path, tmp_path: Path) -> None:
    with pytest.raises(TypeError, match=r"restore\(store\.load\(\)"):
        restore(tensorkeep.CheckpointStore(tmp_path / "run"), rng=False)


def test_generators_of_other_libraries_are_told_apart() -> None:
    with pytest.raises(StateDictMismatchError, match=r"expected a Generator of NumPy, found torch\.\S*Generator"):
        restore({"noise": torch.Generator()}, noise=np.random.default_rng(), rng=False)


def test_of_generators_in_a_pickle_nothing_is_made(tmp_path: Path) -> None:
    model = nn.Linear(1, 1)
    torch.save(capture(model=model, step=1), tmp_path / "s.pt")

    with pytest.raises(
        StateDictMismatchError, match=r"numpy\.random\S* of a pickle, from which no objects are created\..*rng=False"
    ):
        restore(tmp_path / "s.pt", model=model)

    assert restore(tmp_path / "s.pt", model=model, rng=False) == {"step": 1}

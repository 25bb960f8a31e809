"""Optimizers, schedulers, scalers and modules: their states, and they themselves saved whole."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed.checkpoint
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor
from torch.optim import lr_scheduler

from tensorkeep.kinds.pickles import open_pickle
from tests.support.pickles.honest_files import FORMS, saved
from tests.support.pickles.honest_objects import Tower
from tests.support.pickles.read_as_run import assert_has_state, assert_read_as_run

pytestmark = pytest.mark.filterwarnings("ignore")

OPTIMIZERS = {
    name: kind
    for name, kind in vars(torch.optim).items()
    if inspect.isclass(kind) and issubclass(kind, torch.optim.Optimizer) and kind is not torch.optim.Optimizer
}
OPTIMIZER_SETTINGS: dict[str, dict[str, Any]] = {
    "SGD": {"momentum": 0.9, "nesterov": True},
    "Adam": {"amsgrad": True},
    "RMSprop": {"momentum": 0.5, "centered": True},
    "LBFGS": {"max_iter": 3, "history_size": 2},
}
SCHEDULERS: dict[str, Callable[[Any], Any]] = {
    "LambdaLR": lambda o: lr_scheduler.LambdaLR(o, lambda step: 0.9**step),
    "LambdaLR of an object": lambda o: lr_scheduler.LambdaLR(o, Warmup(3)),
    "MultiplicativeLR": lambda o: lr_scheduler.MultiplicativeLR(o, lambda step: 0.9),
    "StepLR": lambda o: lr_scheduler.StepLR(o, 2),
    "MultiStepLR": lambda o: lr_scheduler.MultiStepLR(o, [1, 3, 3]),
    "ConstantLR": lr_scheduler.ConstantLR,
    "LinearLR": lr_scheduler.LinearLR,
    "ExponentialLR": lambda o: lr_scheduler.ExponentialLR(o, 0.9),
    "PolynomialLR": lr_scheduler.PolynomialLR,
    "CosineAnnealingLR": lambda o: lr_scheduler.CosineAnnealingLR(o, 5),
    "CosineAnnealingWarmRestarts": lambda o: lr_scheduler.CosineAnnealingWarmRestarts(o, 5),
    "ReduceLROnPlateau": lr_scheduler.ReduceLROnPlateau,
    "CyclicLR": lambda o: lr_scheduler.CyclicLR(o, 0.01, 0.1),
    "OneCycleLR": lambda o: lr_scheduler.OneCycleLR(o, 0.1, total_steps=10),
    "SequentialLR": lambda o: lr_scheduler.SequentialLR(
        o, [lr_scheduler.ConstantLR(o), lr_scheduler.ExponentialLR(o, 0.9)], [2]
    ),
    "ChainedScheduler": lambda o: lr_scheduler.ChainedScheduler([
        lr_scheduler.StepLR(o, 2),
        lr_scheduler.LinearLR(o),
    ]),
}


class Warmup:
    def __init__(self, steps: int) -> None:
        self.steps = steps

    def __call__(self, step: int) -> float:
        return min(1.0, step / self.steps)


def stepped(name: str) -> torch.optim.Optimizer:
    """Return an optimizer that has taken two steps, with two groups where it takes them."""
    torch.manual_seed(0)
    if name == "SparseAdam":
        embedding = nn.Embedding(4, 3, sparse=True)
        parameters: list[Any] = list(embedding.parameters())
        forward = functools.partial(embedding, torch.tensor([1, 2]))
    else:
        model = nn.Sequential(nn.Linear(3, 4, bias=name != "Muon"), nn.Linear(4, 1, bias=name != "Muon"))
        parameters = list(model.parameters())
        forward = functools.partial(model, torch.ones(2, 3))
    groups = parameters if name == "LBFGS" else [{"params": parameters[:1]}, {"params": parameters[1:], "lr": 0.5}]
    groups = groups if len(parameters) > 1 else parameters
    optimizer = OPTIMIZERS[name](groups, lr=0.01, **OPTIMIZER_SETTINGS.get(name, {}))

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = forward().square().sum()
        loss.backward()
        return loss

    for _ in range(2):
        optimizer.step(closure)
    return optimizer


def dotted(value: Any, prefix: str = "") -> dict[str, torch.Tensor]:
    """Return the tensors of nested dicts and lists by dotted names."""
    if isinstance(value, torch.Tensor):
        return {prefix: value}
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list | tuple) else ()
    found: dict[str, torch.Tensor] = {}
    for key, child in items:
        found |= dotted(child, f"{prefix}.{key}" if prefix else f"{key}")
    return found


@pytest.mark.parametrize("form", ["zip-2", "zip-5", "legacy-2"])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_state_of_every_optimizer(name: str, form: str) -> None:
    state = stepped(name).state_dict()
    file = assert_read_as_run(saved(state, form), FORMS[form]["pickle_protocol"])
    tensors = dotted(state)
    assert tensors
    assert_has_state(file, tensors)
    assert not file.unknowns
    OPTIMIZERS[name](stepped(name).param_groups).load_state_dict(file.load_tree())


@pytest.mark.parametrize("name", ["AdamW", "LBFGS", "SGD"])
def test_whole_optimizer_is_a_record_of_its_tensors(name: str) -> None:
    optimizer = stepped(name)
    file = assert_read_as_run(saved(optimizer), theirs=optimizer)  # running it would add new settings
    assert file.tree.qualified_name == f"torch.optim.{'sgd' if name == 'SGD' else name.lower()}.{name}"
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    loaded = [lazy.load() for lazy in file.values()]
    assert all(any(torch.equal(p.detach(), own) for own in loaded if own.shape == p.shape) for p in parameters)


def test_every_scheduler_is_covered() -> None:
    kinds = {
        name
        for name, kind in vars(lr_scheduler).items()
        if inspect.isclass(kind) and issubclass(kind, lr_scheduler.LRScheduler) and name.strip("_") != "LRScheduler"
    }
    assert kinds == {name.partition(" ")[0] for name in SCHEDULERS}


@pytest.mark.parametrize("protocol", [2, 5])
@pytest.mark.parametrize("name", SCHEDULERS)
def test_state_of_every_scheduler(name: str, protocol: int) -> None:
    optimizer = torch.optim.SGD([nn.Parameter(torch.ones(2))], lr=0.1, momentum=0.9)
    scheduler = SCHEDULERS[name](optimizer)
    for _ in range(3):
        optimizer.step()
        scheduler.step(*([1.0] if name == "ReduceLROnPlateau" else []))
    assert_read_as_run(saved({"scheduler": scheduler.state_dict()}, f"zip-{protocol}"), protocol)


def test_state_of_a_grad_scaler() -> None:
    scaler = torch.amp.GradScaler("cpu")
    scaler.scale(torch.ones((), requires_grad=True)).backward()
    file = assert_read_as_run(saved(scaler.state_dict()))
    assert file.tree["scale"] == 65536.0
    assert not file.unknowns
    assert not assert_read_as_run(saved(scaler)).tree.is_reference


@pytest.mark.parametrize("form", FORMS)
def test_whole_module_has_the_names_of_its_state_dict(form: str) -> None:
    model = Tower()
    protocol = FORMS[form]["pickle_protocol"]
    file = assert_read_as_run(saved(model, form), protocol)
    state = model.state_dict()
    assert list(file)[: len(state)] == list(state)
    for name, tensor in state.items():
        assert torch.equal(file[name].load(), tensor), name
    rest = set(file) - set(state)
    assert all(torch.equal(file[name].load(), model.mask) for name in rest)
    assert_has_state(assert_read_as_run(saved(state, form), protocol), state)
    assert Tower().load_state_dict(open_pickle(saved(state, form), framework="torch").load_tree())


@pytest.mark.parametrize(
    "make",
    [
        lambda: nn.Sequential(nn.Sequential(nn.Linear(2, 2)), nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2))),
        lambda: nn.Transformer(8, 2, 1, 1, 16),
        lambda: nn.LSTM(3, 4, 2, bidirectional=True),
        lambda: nn.utils.parametrizations.weight_norm(nn.Linear(3, 2)),
        lambda: nn.utils.parametrizations.orthogonal(nn.Linear(3, 3)),
        lambda: nn.utils.spectral_norm(nn.Linear(3, 2)),
        lambda: nn.EmbeddingBag(4, 3),
    ],
    ids=["Sequential", "Transformer", "LSTM", "weight_norm", "orthogonal", "spectral_norm", "EmbeddingBag"],
)
def test_modules_of_torch(make: Callable[[], nn.Module]) -> None:
    model = make()
    state = model.state_dict()
    assert_has_state(assert_read_as_run(saved(state)), state)
    if not torch.nn.utils.parametrize.is_parametrized(model):  # these can only be saved by their state
        whole = open_pickle(saved(model), framework="torch")
        assert list(whole)[: len(state)] == list(state)


@pytest.mark.parametrize("what", ["LSTM", "parent"])
def test_names_of_the_state_dict_come_first(what: str) -> None:
    model: nn.Module = Tower()
    if what == "LSTM":  # it has its parameters in a list too
        model = nn.ModuleDict({"rnn": nn.LSTM(2, 3), "head": nn.Linear(3, 1)})
    else:
        model.blocks[0].parent = [model]
    file = open_pickle(saved(model))
    state = list(model.state_dict())
    assert list(file)[: len(state)] == state
    assert len(file) == len(state) + (4 if what == "LSTM" else 0)


def test_quantized_module() -> None:
    model = torch.ao.nn.quantized.Linear(2, 3)
    file = assert_read_as_run(saved(model.state_dict()))
    assert {"scale", "zero_point"} <= set(file)
    assert torch.equal(file.load_tree()["_packed_params._packed_params"][0], model.weight())
    assert file.tree["_packed_params._packed_params"][0].kind == "per_tensor_affine"


def test_distributed_tensor_is_a_record_of_its_local_tensor() -> None:
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    try:
        mesh = init_device_mesh("cpu", (1,))
        tensor = distribute_tensor(torch.arange(6.0).view(2, 3), mesh, [Shard(0)])
        for form in ("zip-2", "zip-5"):
            file = assert_read_as_run(saved({"w": tensor, "x": torch.ones(1)}, form), FORMS[form]["pickle_protocol"])
            local = next(name for name in file if name.endswith("_local_tensor"))
            assert torch.equal(file[local].load(), tensor.to_local())
            assert file["x"].load() == 1
    finally:
        torch.distributed.destroy_process_group()

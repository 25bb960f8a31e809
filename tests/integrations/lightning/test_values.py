"""What hyper-parameters and hooks put into checkpoints beside plain data, saved and loaded exactly."""

from __future__ import annotations

import gc
import weakref
from argparse import Namespace
from collections import OrderedDict, defaultdict, deque
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import lightning.fabric.utilities.data
import lightning_fabric.utilities.data
import pytest
import torch
from omegaconf import MISSING, DictConfig, ListConfig, OmegaConf
from omegaconf.errors import InterpolationKeyError, ReadonlyConfigError

import tensorkeep
from tensorkeep.errors import FormatError, LimitError, StateError
from tensorkeep.integrations.lightning import TensorkeepCheckpointIO, _configs
from tests.support.integrations.lightning.runs import exactly

AttributeDict = lightning.fabric.utilities.data.AttributeDict


class Phase(Enum):
    WARMUP = "warmup"


@dataclass
class Optimizer:
    lr: float = 0.1
    phase: Phase = Phase.WARMUP


@dataclass
class Config:
    optimizer: Optimizer = field(default_factory=Optimizer)
    layers: list[int] = field(default_factory=lambda: [1, 2])
    rates: dict[str, float] = field(default_factory=dict)
    name: str | None = None
    either: int | str = 3
    missing: str = MISSING
    same: str = "${name}"
    anything: Any = None
    path: Path = Path("a/b")


def there_and_back(value: Any, path: Path, **options: Any) -> Any:
    plugin = TensorkeepCheckpointIO(**options)
    plugin.save_checkpoint({"hyper_parameters": {"value": value}}, path / "x.ckpt")
    return plugin.load_checkpoint(path / "x.ckpt")["hyper_parameters"]["value"]


@pytest.mark.parametrize(
    "value",
    [
        Namespace(lr=0.1, inner=Namespace(a=[1])),
        SimpleNamespace(a=1),
        Path("a/b"),
        (1, "two", None, True, 2.5, b"bytes", {3}, frozenset({4}), 1 + 2j),
        OrderedDict([("b", 1), ("a", 2)]),
        deque([1, 2], maxlen=3),
        torch.float16,
        torch.device("cuda", 1),
        torch.Size([2, 3]),
        slice(1, 2),
        {1: "a", (2, 3): "b", None: "c"},
        float("inf"),
        10**40,
        torch.Generator().manual_seed(3).get_state(),
    ],
    ids=lambda value: type(value).__name__,
)
def test_plain_data(tmp_path: Path, value: Any) -> None:
    assert exactly(there_and_back(value, tmp_path), value)


@pytest.mark.parametrize("value", [Phase.WARMUP, Optimizer(0.5)])
def test_objects_of_classes_that_are_passed(tmp_path: Path, value: Any) -> None:
    made = there_and_back(value, tmp_path, classes=[Phase, Optimizer])
    assert made == value
    assert type(made) is type(value)

    inert = there_and_back(value, tmp_path)
    assert isinstance(inert, tensorkeep.NamedData)
    plugin = TensorkeepCheckpointIO(classes=[Phase, Optimizer])
    plugin.save_checkpoint({"value": inert}, tmp_path / "again.ckpt")
    assert plugin.load_checkpoint(tmp_path / "again.ckpt")["value"] == value, "what was inert was saved as it was"


@pytest.mark.parametrize("cls", [AttributeDict, lightning_fabric.utilities.data.AttributeDict])
def test_dicts_of_attributes(tmp_path: Path, cls: Any) -> None:
    value = cls(a=1, inner=cls(weight=torch.ones(2)), **{"not a name": 3})
    value[4] = "a number as a key"

    made = there_and_back([value, value], tmp_path)

    assert type(made[0]) is cls
    assert type(made[0].inner) is cls
    assert made[0].inner.weight.equal(torch.ones(2))
    assert list(made[0]) == ["a", "inner", "not a name", 4]
    assert made[0] is made[1]


def test_wherever_they_stand(tmp_path: Path) -> None:
    one = AttributeDict(a=1)
    made = there_and_back(
        {
            "list": [one],
            "tuple": (1, (one,)),
            "ordered": OrderedDict(x=one),
            "default": defaultdict(list, x=one),
            "deque": deque([one], 5),
            "namespace": Namespace(x=one),
            "simple": SimpleNamespace(x=one),
        },
        tmp_path,
    )

    assert all(type(place) is AttributeDict for place in (
        made["list"][0], made["tuple"][1][0], made["ordered"]["x"], made["default"]["x"], made["deque"][0],
        made["namespace"].x, made["simple"].x,
    ))  # fmt: skip
    assert type(made["ordered"]) is OrderedDict
    assert made["deque"].maxlen == 5
    assert len({id(place) for place in (made["list"][0], made["deque"][0], made["simple"].x)}) == 1


def test_classes_that_are_passed_and_no_others(tmp_path: Path) -> None:
    made = there_and_back({"optimizer": torch.optim.Adam}, tmp_path, classes=[torch.optim.Adam])
    assert made["optimizer"] is torch.optim.Adam

    with pytest.raises(StateError, match=r"hyper_parameters\.value\.optimizer.*torch\.optim\.adam\.Adam"):
        there_and_back({"optimizer": torch.optim.Adam}, tmp_path)
    assert isinstance(TensorkeepCheckpointIO().load_checkpoint(tmp_path / "x.ckpt"), dict), "the old one is there"


@pytest.mark.parametrize(
    "value", [torch.nn.Linear(1, 1), torch.relu, lambda: 1, object(), type("Local", (dict,), {})()]
)
def test_what_is_no_data(tmp_path: Path, value: Any) -> None:
    with pytest.raises(StateError, match=r"hyper_parameters\.value\.deep\.0"):
        there_and_back({"deep": [value]}, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_container_that_holds_itself(tmp_path: Path) -> None:
    value: dict[str, Any] = {"a": 1}
    value["self"] = [value]
    with pytest.raises(StateError, match="cycle"):
        there_and_back(value, tmp_path)

    value["config"] = OmegaConf.create({"a": 1})
    with pytest.raises(StateError):
        there_and_back(value, tmp_path)


def test_what_lies_too_deep(tmp_path: Path) -> None:
    value: Any = AttributeDict(a=1)
    for _ in range(1000):
        value = [value]

    with pytest.raises(LimitError, match="too deep"):
        there_and_back(value, tmp_path)


def nodes(config: Any) -> list[Any]:
    """Return all that is known of the nodes of a configuration, in order."""
    parts = vars(config)
    content = parts.get("_content", parts.get("_val"))
    found: list[Any] = [
        type(config), {name: value for name, value in vars(parts["_metadata"]).items() if name != "resolver_cache"}
    ]  # fmt: skip
    if isinstance(content, dict):
        return [*found, list(content), *(nodes(child) for child in content.values())]
    if isinstance(content, list | tuple):
        return [*found, *map(nodes, content)]
    return [*found, content if not hasattr(content, "_metadata") else nodes(content)]


PLAIN = {
    "a": {"b": [1, {"c": "${d}"}, (2, 3)], "none": None, "missing": "???", "phase": Phase.WARMUP, "bytes": b"x"},
    "d": 2.5,
    3: "number",
    "resolved later": "${oc.env:NO_SUCH_VARIABLE}",
    "path": Path("p"),
}


def configs() -> dict[str, Any]:
    frozen = OmegaConf.create({"x": {"y": 1}})
    OmegaConf.set_readonly(frozen, value=True)
    OmegaConf.set_struct(frozen.x, value=True)
    structured = OmegaConf.structured(Config(name="n", layers=[4], rates={"a": 1.5}, either="text"))
    structured.anything = {"nested": [Optimizer(0.7)]}
    return {
        "plain": OmegaConf.create(PLAIN),
        "list": OmegaConf.create([1, [2, {"a": None}]]),
        "flags": frozen,
        "structured": structured,
        "structured class": OmegaConf.structured(Config),
        "in another": OmegaConf.create({"whole": structured, "k": "${whole.layers.0}"}),
        "typed": DictConfig({"a": 1}, key_type=str, element_type=int),
        "typed list": ListConfig([1.5], element_type=float),
        "empty": OmegaConf.create({}),
        "none": DictConfig(None),
        "missing": DictConfig("???"),
        "interpolation": DictConfig("${x}"),
        "objects": DictConfig({"weight": torch.ones(2)}, flags={"allow_objects": True}),
    }


@pytest.mark.parametrize("name", configs())
def test_configurations_are_exactly_what_they_were(tmp_path: Path, name: str) -> None:
    value = configs()[name]

    made = there_and_back(value, tmp_path, classes=[Phase, Optimizer, Config])

    assert str(nodes(made)) == str(nodes(value))


def test_a_part_of_a_configuration_keeps_the_whole(tmp_path: Path) -> None:
    whole = OmegaConf.create({
        "data": {"size": 3},
        "models": [{"width": "${data.size}", "deep": {"w": "${..width}"}}],
    })
    value = {"part": whole.models[0], "deeper": whole.models[0].deep, "whole": whole}

    made = there_and_back(value, tmp_path)

    assert made["part"].width == 3
    assert made["deeper"].w == 3
    made["whole"].data.size = 4
    assert made["part"].width == 4, "it is a part of the same whole"


def test_flags_hold_and_nothing_is_resolved(tmp_path: Path) -> None:
    made = there_and_back(configs()["flags"], tmp_path)
    with pytest.raises(ReadonlyConfigError):
        made.x.y = 2

    made = there_and_back(OmegaConf.create({"a": "${nowhere}"}), tmp_path)
    with pytest.raises(InterpolationKeyError):
        str(made.a)


def test_a_structured_configuration_needs_its_classes(tmp_path: Path) -> None:
    made = there_and_back(configs()["structured"], tmp_path, classes=[Config, Phase])  # and not Optimizer

    assert isinstance(made, tensorkeep.NamedData)
    assert made.fields["class"].endswith(":Config")
    plugin = TensorkeepCheckpointIO(classes=[Phase, Optimizer, Config])
    plugin.save_checkpoint({"value": made}, tmp_path / "again.ckpt")
    again = plugin.load_checkpoint(tmp_path / "again.ckpt")["value"]
    assert str(nodes(again)) == str(nodes(configs()["structured"]))


def test_a_configuration_whose_class_has_changed_is_an_error(tmp_path: Path) -> None:
    there_and_back(OmegaConf.structured(Config(name="n")), tmp_path, classes=[Phase, Optimizer, Config])

    @dataclass
    class Other:
        name: int = 3

    moved = {f"{cls.__module__}:{cls.__qualname__}": cls for cls in (Phase, Optimizer)}
    moved[f"{Config.__module__}:{Config.__qualname__}"] = Other
    with pytest.raises(FormatError, match="cannot be restored"):
        TensorkeepCheckpointIO(classes=moved).load_checkpoint(tmp_path / "x.ckpt")


@pytest.mark.parametrize(
    ("class_name", "fields"),
    [
        ("lightning.fabric.utilities.data:AttributeDict", {}),
        ("lightning.fabric.utilities.data:AttributeDict", {"items": [1]}),
        ("builtins:type", {}),
        ("builtins:type", {"name": 3}),
        ("omegaconf.dictconfig:DictConfig", {}),
        ("omegaconf.dictconfig:DictConfig", {"content": 5}),
        ("omegaconf.dictconfig:DictConfig", {"content": {"a": object}, "element_type": "os:system"}),
        ("omegaconf.dictconfig:DictConfig", {"content": {}, "flags": {"readonly": "x"}, "class": 3}),
        ("omegaconf.dictconfig:DictConfig", {"root": 3, "path": ["a"]}),
        ("omegaconf.dictconfig:DictConfig", {"content": {(1, 2): 3}}),
        ("omegaconf.listconfig:ListConfig", {"content": {"a": 1}}),
        ("omegaconf.listconfig:ListConfig", {"content": ["x"], "element_type": "builtins:int"}),
    ],
)
def test_hostile_objects_give_one_of_our_errors_or_stay_data(
    tmp_path: Path, class_name: str, fields: dict[str, Any]
) -> None:
    fields = {name: {} if value == {"a": object} else value for name, value in fields.items()}
    tensorkeep.save({"value": tensorkeep.NamedData("dataclass", class_name, fields)}, tmp_path / "x.ckpt")

    try:
        made = TensorkeepCheckpointIO().load_checkpoint(tmp_path / "x.ckpt")["value"]
    except tensorkeep.TensorkeepError:
        return
    assert isinstance(made, tensorkeep.NamedData)


@pytest.mark.parametrize("name", ["os:system", "subprocess:Popen", "torch.nn.modules.linear:Linear"])
def test_a_class_that_nobody_passed_is_never_looked_up(tmp_path: Path, name: str) -> None:
    hostile = tensorkeep.NamedData("dataclass", "builtins:type", {"name": name})
    tensorkeep.save({"hparams_type": hostile}, tmp_path / "x.ckpt")

    assert TensorkeepCheckpointIO().load_checkpoint(tmp_path / "x.ckpt")["hparams_type"] == hostile


def test_tensors_have_memory_of_their_own_and_share_it_as_they_did(tmp_path: Path) -> None:
    weight = torch.randn(7, 3)
    value = {
        "whole": weight,
        "row": weight[2],
        "crosswise": weight.t(),
        "alone": torch.randn(5),
        "odd": torch.ones(3),
    }
    plugin = TensorkeepCheckpointIO()
    plugin.save_checkpoint({"state_dict": {"w": weight}, "other": value}, tmp_path / "x.ckpt")

    made = plugin.load_checkpoint(tmp_path / "x.ckpt")["other"]
    (tmp_path / "x.ckpt").write_bytes(b"")  # a mapped file would end the process here

    assert exactly(made, value)
    assert all(tensor.untyped_storage().data_ptr() % 64 == 0 for tensor in made.values())
    made["row"].fill_(9)
    assert made["whole"][2].eq(9).all()
    assert made["crosswise"][:, 2].eq(9).all()


def test_no_tensor_is_kept_alive(tmp_path: Path) -> None:
    plugin = TensorkeepCheckpointIO()
    checkpoint = {"x": [AttributeDict(w=torch.ones(3))], "y": torch.zeros(2)}
    plugin.save_checkpoint(checkpoint, tmp_path / "x.ckpt")
    loaded = plugin.load_checkpoint(tmp_path / "x.ckpt")
    gone = [weakref.ref(each["y"]) for each in (checkpoint, loaded)] + [weakref.ref(loaded["x"][0]["w"])]
    gc.collect()
    gc.disable()
    try:
        plugin.save_checkpoint(checkpoint, tmp_path / "x.ckpt")
        again = plugin.load_checkpoint(tmp_path / "x.ckpt")
        gone.append(weakref.ref(again["y"]))
        del checkpoint, loaded, again

        assert [ref() for ref in gone] == [None] * 4
    finally:
        gc.enable()


def test_a_configuration_that_unfolds_without_end_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_configs, "_MAX_NODES", 5_000)
    data = tensorkeep.NamedData("dataclass", "omegaconf.listconfig:ListConfig", {"content": [1]})
    for _ in range(60):
        data = tensorkeep.NamedData("dataclass", data.class_name, {"content": [data, data]})
    tensorkeep.save({"value": data}, tmp_path / "x.ckpt")

    with pytest.raises(LimitError, match="too many values"):
        TensorkeepCheckpointIO().load_checkpoint(tmp_path / "x.ckpt")

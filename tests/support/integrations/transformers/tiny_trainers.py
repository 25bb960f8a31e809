"""Small models of transformers, and Trainers of them with dropout, shuffling and a schedule, always the same."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import torch
import transformers

from tensorkeep.integrations.transformers import Trainer


def gpt2(n_embd: int = 32, seed: int = 0, **settings: Any) -> transformers.GPT2LMHeadModel:
    """Return a model whose embedding and head are tied, unless `tie_word_embeddings` is off."""
    torch.manual_seed(seed)
    sizes = {"vocab_size": 101, "n_embd": n_embd, "n_layer": 2, "n_head": 2, "n_positions": 32}
    config = transformers.GPT2Config(**sizes, bos_token_id=0, eos_token_id=0, **settings)
    config.loss_type = "ForCausalLMLoss"
    return transformers.GPT2LMHeadModel(config)


def bert(seed: int = 0, **settings: Any) -> transformers.BertForMaskedLM:
    torch.manual_seed(seed)
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
    return transformers.BertForMaskedLM(transformers.BertConfig(vocab_size=101, **sizes, **settings))


class Texts(torch.utils.data.Dataset[dict[str, torch.Tensor]]):
    """Rows of random tokens."""

    def __init__(self, n_rows: int = 64) -> None:
        self._rows = torch.randint(1, 101, (n_rows, 12), generator=torch.Generator().manual_seed(1))

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, place: int) -> dict[str, torch.Tensor]:
        return {"input_ids": self._rows[place], "labels": self._rows[place]}


def trainer(directory: Path, cls: Any = Trainer, model: Any = None, callbacks: Any = (), **settings: Any) -> Any:
    """Return a Trainer of 20 steps, 8 of them to an epoch, which saves every 5."""
    transformers.set_seed(0)
    arguments = {
        "output_dir": os.fspath(directory),
        "max_steps": 20,
        "save_steps": 5,
        "logging_steps": 2,
        "per_device_train_batch_size": 4,
        "gradient_accumulation_steps": 2,
        "learning_rate": 0.01,
        "lr_scheduler_type": "cosine",
        "warmup_steps": 3,
        "report_to": [],
        "disable_tqdm": True,
        "use_cpu": True,
    }
    return cls(
        model=gpt2() if model is None else model,
        args=transformers.TrainingArguments(**arguments | settings),
        train_dataset=Texts(),
        eval_dataset=Texts(8),
        callbacks=list(callbacks),
    )


class Interrupted(Exception):
    """What ends a run in a test."""


class InterruptAt(transformers.TrainerCallback):
    """Ends a run after a step."""

    def __init__(self, step: int) -> None:
        self._step = step

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if state.global_step == self._step:
            raise Interrupted


def weights(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    return {name: tensor.clone() for name, tensor in model.state_dict().items()}


def assert_equal(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> None:
    assert one.keys() == other.keys()
    assert [name for name, tensor in one.items() if not torch.equal(tensor, other[name])] == []

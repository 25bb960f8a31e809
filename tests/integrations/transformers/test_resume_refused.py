"""What a Trainer does not go on from: said before the first step, with the checkpoint and what to do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from tensorkeep.errors import SourceMissingError, StateDictMismatchError
from tests.support.integrations.transformers.tiny_trainers import InterruptAt, Interrupted, gpt2, trainer


class Layers(nn.Module):
    """The same layers in one order or another."""

    def __init__(self, *, moved: bool) -> None:
        super().__init__()
        if moved:
            self.middle = nn.Linear(16, 16)
        self.embedding = nn.Embedding(101, 16)
        if not moved:
            self.middle = nn.Linear(16, 16)
        self.head = nn.Linear(16, 101)

    def forward(self, input_ids: Any, labels: Any) -> dict[str, Any]:
        scores = self.head(self.middle(self.embedding(input_ids)))
        return {"loss": nn.functional.cross_entropy(scores.flatten(0, 1), labels.flatten()), "logits": scores}


def interrupted(directory: Path, **settings: Any) -> None:
    with pytest.raises(Interrupted):
        trainer(directory, callbacks=[InterruptAt(6)], **settings).train()


def refused(directory: Path, match: str, **settings: Any) -> None:
    run = trainer(directory, **settings)
    with pytest.raises(StateDictMismatchError, match=match) as caught:
        run.train(resume_from_checkpoint=True)
    assert any(str(directory / "checkpoint-5") in note for note in caught.value.__notes__)
    assert run.state.global_step in {0, 5}


def test_layers_in_another_order(tmp_path: Path) -> None:
    """A fused optimizer with moments of another shape would write past their end."""
    interrupted(tmp_path, model=Layers(moved=False))

    refused(tmp_path, "Neither optimizer nor scheduler was changed", model=Layers(moved=True))


@pytest.mark.parametrize("optim", ["sgd", "rmsprop", "adagrad", "adafactor"])
def test_another_optimizer(tmp_path: Path, optim: str) -> None:
    interrupted(tmp_path)

    refused(tmp_path, "optimizer", optim=optim)


def test_another_model(tmp_path: Path) -> None:
    interrupted(tmp_path)
    refused(tmp_path, r"lacks weights of GPT2LMHeadModel.*Create the model as it was for", model=_deeper())


def _deeper() -> Any:
    torch.manual_seed(0)
    config = gpt2().config
    config.n_layer = 3
    return type(gpt2())(config)


def test_weights_of_other_shapes_name_the_checkpoint(tmp_path: Path) -> None:
    interrupted(tmp_path)

    with pytest.raises(RuntimeError, match="size mismatch") as caught:
        trainer(tmp_path, model=gpt2(n_embd=64)).train(resume_from_checkpoint=True)

    assert str(tmp_path / "checkpoint-5") in caught.value.__notes__[0]


@pytest.mark.parametrize(
    ("wanted", "match"),
    [
        ("", r"contains some .*found checkpoint-5\. Name one of them, or pass resume_from_checkpoint=True"),
        ("nothing", "no such checkpoint .*nothing"),
        ("checkpoint-5/config.json", "no such checkpoint .*found a file"),
    ],
)
def test_what_is_no_checkpoint(tmp_path: Path, wanted: str, match: str) -> None:
    interrupted(tmp_path)

    with pytest.raises(SourceMissingError, match=match):
        trainer(tmp_path).train(resume_from_checkpoint=str(tmp_path / wanted))

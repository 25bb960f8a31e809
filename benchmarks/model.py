"""Loading checkpoints into torch models."""

from __future__ import annotations

from typing import Any

import torch
from accelerate import load_checkpoint_in_model
from huggingface_hub import load_torch_model
from transformers import LlamaForCausalLM

import tensorkeep.torch
from benchmarks import inputs, limits
from benchmarks.case import AtLeast, Case, Contender, Place
from benchmarks.llama import Llama, empty_model, plain_files, shards_of

__all__ = ["CASES"]


class _Target:
    """A model with weights of its own, and files with others, in the page cache."""

    def __init__(self, place: Place) -> None:
        llama = Llama(place)
        self.model = llama.model
        self.files = llama.files
        _warm(place)
        self.weights = [tensor.view(torch.uint8).reshape(-1).numpy() for tensor in llama.tensors.values()]


def _warm(place: Place) -> Any:
    files = plain_files(place)
    for path in shards_of(files):
        inputs.read_into_cache(path)
    return files


def _read_into_weights(target: _Target) -> None:
    limits.read_into_by_two_threads(shards_of(target.files), target.weights)


def _build(files: Any) -> LlamaForCausalLM:
    model = empty_model(files)
    tensorkeep.torch.load_into(model, files, assign=True)
    return model


CASES = (
    Case(
        name="model/load-into",
        title="`load_into` an existing model, 2.5 GB in 201 BF16 tensors and 5 shards, warm",
        prepare=_Target,
        ours=Contender("tensorkeep", lambda target: tensorkeep.torch.load_into(target.model, target.files)),
        peers=(
            Contender("huggingface_hub", lambda target: load_torch_model(target.model, target.files, strict=True)),
            Contender("accelerate", lambda target: load_checkpoint_in_model(target.model, target.files, strict=True)),
        ),
        limits=(Contender("pread into the weights by 2 threads", _read_into_weights),),
        target=AtLeast(1.0),
        rounds=9,
        remark="Memory excludes the model's own. The files are those of the Hugging Face libraries, without "
        "digests. tensorkeep reads all headers and checks every name and shape before it writes the first "
        "weight; the others check as they go.",
    ),
    Case(
        name="model/build",
        title="create the model and `load_into` it with `assign=True`, the same files, warm, no page touched",
        prepare=_warm,
        ours=Contender("tensorkeep", _build),
        peers=(Contender("transformers.from_pretrained", LlamaForCausalLM.from_pretrained),),
        target=AtLeast(1.0),
        rounds=9,
        remark="Both create the module on device meta and then map the files: weights are read when used.",
    ),
)

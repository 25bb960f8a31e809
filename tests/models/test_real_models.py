"""Models of other libraries: saved by them, loaded here; and in no more memory than the model has."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
import transformers
from safetensors.torch import save_model
from torch import nn

import tensorkeep
from tensorkeep.torch import load_into
from tests.support import forks

SIZES = {"vocab_size": 120, "max_position_embeddings": 32}
CONFIGS = {
    "BertForMaskedLM": transformers.BertConfig(
        hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32, **SIZES
    ),
    "GPT2LMHeadModel": transformers.GPT2Config(n_embd=16, n_layer=2, n_head=2, **SIZES),
    "T5ForConditionalGeneration": transformers.T5Config(
        d_model=16, d_kv=8, d_ff=32, num_layers=2, num_heads=2, vocab_size=120
    ),
}


def make(name: str, seed: int) -> nn.Module:
    torch.manual_seed(seed)
    return getattr(transformers, name)(CONFIGS[name]).eval()


def outputs(model: nn.Module) -> torch.Tensor:
    ids = torch.arange(24).reshape(2, 12)
    more = {"decoder_input_ids": ids} if "T5" in type(model).__name__ else {}
    with torch.no_grad():
        return model(input_ids=ids, **more).logits


@pytest.fixture(params=CONFIGS)
def name(request) -> str:
    return request.param


@pytest.mark.parametrize("shard_size", ["50GB", "10KB"])
def test_what_save_pretrained_saves_is_loaded(name, shard_size, tmp_path):
    original, model = make(name, 1), make(name, 2)
    original.save_pretrained(tmp_path, max_shard_size=shard_size)
    assert not torch.equal(outputs(model), outputs(original))

    report = load_into(model, tmp_path)

    assert (report.missing, report.unexpected, report.mismatched) == ((), (), ())
    assert torch.equal(outputs(model), outputs(original))
    assert model.get_output_embeddings().weight is model.get_input_embeddings().weight


@pytest.mark.parametrize("options", [{"assign": True}, {"dtype": "bf16"}])
def test_assigned_and_converted(name, options, tmp_path):
    original, model = make(name, 1), make(name, 2)
    original.save_pretrained(tmp_path)

    load_into(model, tmp_path, **options)

    expected = outputs(original.to(torch.bfloat16) if "dtype" in options else original)
    assert torch.equal(outputs(model), expected)
    assert model.get_output_embeddings().weight is model.get_input_embeddings().weight


def test_what_save_model_of_safetensors_saves_is_loaded(name, tmp_path):
    original, model = make(name, 1), make(name, 2)
    save_model(original, tmp_path / "model.safetensors")

    report = load_into(model, tmp_path)

    assert report.missing == ()
    assert torch.equal(outputs(model), outputs(original))


def test_a_model_on_meta_is_whole_but_for_what_no_checkpoint_has(name, tmp_path):
    original = make(name, 1)
    original.save_pretrained(tmp_path)
    with torch.device("meta"):
        model = make(name, 2)

    report = load_into(model, tmp_path, assign=True)

    assert set(report.left_on_meta) == set(dict(original.named_buffers())) - set(original.state_dict())
    assert all(
        torch.equal(mine, theirs) for mine, theirs in zip(model.parameters(), original.parameters(), strict=True)
    )


def test_data_parallel_wrappers_and_their_checkpoints(tmp_path):
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    try:
        original, model = make("GPT2LMHeadModel", 1), make("GPT2LMHeadModel", 2)
        wrapped = nn.parallel.DistributedDataParallel(original)
        tensorkeep.save({k: v.clone() for k, v in wrapped.state_dict().items()}, tmp_path / "wrapped.safetensors")
        load_into(model, tmp_path / "wrapped.safetensors", strip_prefix="module.")
        assert torch.equal(outputs(model), outputs(original))

        original.save_pretrained(tmp_path / "plain")
        other = nn.parallel.DistributedDataParallel(make("GPT2LMHeadModel", 3))
        load_into(other, tmp_path / "plain", add_prefix="module.")
        assert torch.equal(outputs(other.module), outputs(original))
    finally:
        torch.distributed.destroy_process_group()


MEASURE = """
import json, sys, torch
from torch import nn
from tensorkeep.torch import load_into
model = nn.Sequential(*[nn.Linear(2048, 2048) for _ in range(8)])
with torch.no_grad():
    for parameter in model.parameters():
        parameter.zero_()
load_into(nn.Linear(2048, 2048), sys.argv[1], strict=False, strip_prefix="0.", dtype="bf16")  # what is loaded once
def status(key):
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith(key)) // 1024
open("/proc/self/clear_refs", "w").write("5")
before = status("VmRSS")
load_into(model, sys.argv[1], **json.loads(sys.argv[2]))
print(status("VmHWM") - before)
"""


@pytest.mark.skipif(
    not Path("/proc/self/clear_refs").exists(), reason="peaks are read and reset the way Linux has it"
)
@pytest.mark.parametrize("options", [{}, {"dtype": "bf16"}, {"dtype": "f64"}])
def test_memory_beyond_that_of_the_model_is_bounded(options, tmp_path):
    path = tmp_path / "model.safetensors"
    sizes = nn.Sequential(*[nn.Linear(2048, 2048) for _ in range(8)]).state_dict()
    tensorkeep.save({name: torch.zeros(tensor.shape) for name, tensor in sizes.items()}, path)
    grown = sum(tensor.nbytes for tensor in sizes.values()) // 2**20 if options.get("dtype") == "f64" else 0

    done = forks.run(MEASURE, path, json.dumps(options))

    assert done.returncode == 0, done.stderr
    assert path.stat().st_size > 2 * 64 * 2**20
    assert int(done.stdout) < grown + 64

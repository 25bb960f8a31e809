"""huggingface_hub: its mixin, with and without tensorkeep under the name of safetensors."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import huggingface_hub
import pytest
import torch

import tensorkeep
from tensorkeep.errors import IntegrityError
from tensorkeep.integrations.transformers import from_pretrained, save_pretrained
from tests.support.integrations.transformers.tiny_trainers import assert_equal, weights


class Mixed(torch.nn.Module, huggingface_hub.PyTorchModelHubMixin):
    """A model of one's own that the Hub can hold."""

    def __init__(self, width: int = 3) -> None:
        super().__init__()
        self.one, self.other = torch.nn.Linear(width, width), torch.nn.Linear(width, width)
        self.other.weight = self.one.weight


def test_a_model_with_the_mixin(tmp_path: Path) -> None:
    model = Mixed(width=5)
    save_pretrained(model, tmp_path)

    loaded = from_pretrained(Mixed, tmp_path, verify="require")

    assert_equal(weights(loaded), weights(model))
    assert_equal(weights(Mixed.from_pretrained(tmp_path)), weights(model))
    assert {path.name for path in tmp_path.iterdir()} == {"README.md", "config.json", "model.safetensors"}
    data = bytearray((tmp_path / "model.safetensors").read_bytes())
    data[-1] ^= 1
    (tmp_path / "model.safetensors").write_bytes(data)
    with pytest.raises(IntegrityError):
        from_pretrained(Mixed, tmp_path)


def test_what_a_model_lacks_is_an_error(tmp_path: Path) -> None:
    save_pretrained(Mixed(), tmp_path)
    tensorkeep.save(tensorkeep.open(tmp_path).select("one.*"), tmp_path / "model.safetensors")

    with pytest.raises(RuntimeError, match=r"other\.bias"):
        from_pretrained(Mixed, tmp_path)
    assert from_pretrained(Mixed, tmp_path, strict=False) is not None


ON_TENSORKEEP = """
import os, sys
import tensorkeep
tensorkeep.install_as_safetensors()
import huggingface_hub, torch, transformers
from tests.integrations.transformers.test_hub import Mixed
from tests.support.integrations.transformers.tiny_trainers import assert_equal, gpt2, weights
from tensorkeep.integrations.transformers import from_pretrained, save_pretrained
import safetensors.torch
assert safetensors.torch is tensorkeep.torch

folder = sys.argv[1]
model = Mixed(width=4)
os.mkdir(f"{folder}/hub")
huggingface_hub.save_torch_model(model, f"{folder}/hub", max_shard_size=70)
again = Mixed(width=4)
huggingface_hub.load_torch_model(again, f"{folder}/hub")
assert_equal(weights(again), weights(model))

model = gpt2(tie_word_embeddings=False)
model.lm_head.weight = model.transformer.wte.weight
save_pretrained(model, f"{folder}/ours")
loaded = from_pretrained(transformers.AutoModelForCausalLM, f"{folder}/ours", verify="require")
assert loaded.lm_head.weight is loaded.transformer.wte.weight
assert_equal(weights(loaded), weights(model))
save_pretrained(gpt2(), f"{folder}/ours", max_shard_size="20kB")
plain = transformers.AutoModelForCausalLM.from_pretrained(f"{folder}/ours")
assert plain.lm_head.weight is plain.transformer.wte.weight
assert_equal(weights(plain), weights(gpt2()))

names = ["transformer.wte", "transformer.wpe", "transformer.h.0", "transformer.ln_f", "lm_head"]
device_map = dict.fromkeys(names, "cpu") | {f"transformer.h.{n}": "disk" for n in range(1, plain.config.n_layer)}
spread = transformers.AutoModelForCausalLM.from_pretrained(
    f"{folder}/ours", device_map=device_map, offload_folder=f"{folder}/offloaded"
)
assert all(parameter.is_meta for parameter in spread.transformer.h[1].parameters())
tokens = torch.tensor([[1, 2, 3]])
with torch.no_grad():
    assert spread.eval()(tokens).logits.equal(plain.eval()(tokens).logits)
print("done")
"""


def test_all_of_it_on_tensorkeep(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", ON_TENSORKEEP, tmp_path],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"HF_HUB_OFFLINE": "1"},
    )

    assert done.stdout.split()[-1:] == ["done"], done.stderr

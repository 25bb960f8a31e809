"""Real transformers, huggingface_hub, accelerate, skorch and torch.distributed.checkpoint, all on tensorkeep.

Started by `tensorkeep run`, where safetensors is not installed. Prints one line per library.
"""

import importlib.metadata
import sys
from pathlib import Path

import accelerate
import huggingface_hub
import numpy as np
import safetensors
import safetensors.torch
import skorch
import torch
import torch.distributed.checkpoint as dcp
from huggingface_hub import load_torch_model, save_torch_model
from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageReader, HuggingFaceStorageWriter
from transformers import BertConfig, BertModel

import tensorkeep

work = Path(sys.argv[1])
assert safetensors.safe_open is tensorkeep.safe_open
assert safetensors.torch.save_file.__module__ == "tensorkeep.torch"
assert safetensors.__version__ == importlib.metadata.version("safetensors") == "0.8.0"


def equal(left, right):
    right = dict(right)
    return all(torch.equal(tensor, right[name]) for name, tensor in dict(left).items())


torch.manual_seed(0)
config = BertConfig(vocab_size=64, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64)
model = BertModel(config).eval()

model.save_pretrained(work / "one")
model.save_pretrained(work / "many", max_shard_size="20KB")
for folder in ("one", "many"):
    again = BertModel.from_pretrained(work / folder)
    assert equal(model.state_dict(), again.state_dict()), folder
assert len(list((work / "many").glob("*.safetensors"))) > 2
print("transformers")

(work / "hub").mkdir()
save_torch_model(model, work / "hub", max_shard_size="20KB")
fresh = BertModel(config)
load_torch_model(fresh, work / "hub", strict=True)
assert equal(model.state_dict(), fresh.state_dict())
assert huggingface_hub.__version__
print("huggingface_hub")

accelerate.Accelerator(cpu=True).save_model(model, str(work / "accelerate"))
fresh = accelerate.load_checkpoint_and_dispatch(BertModel(config), str(work / "accelerate"), device_map={"": "cpu"})
assert equal(model.state_dict(), fresh.state_dict())
accelerate.disk_offload(BertModel.from_pretrained(work / "one"), str(work / "offload"))
print("accelerate")

inputs = np.random.default_rng(0).normal(size=(32, 4)).astype("float32")
targets = (inputs.sum(1) > 0).astype("int64")


def net():
    return skorch.NeuralNetClassifier(
        torch.nn.Linear(4, 2), max_epochs=2, verbose=0, criterion=torch.nn.CrossEntropyLoss
    )


trained = net().fit(inputs, targets)
trained.save_params(f_params=work / "net.safetensors", use_safetensors=True)
with (work / "net.bin").open("wb") as file:
    trained.save_params(f_params=file, use_safetensors=True)
for source in ("net.safetensors", "net.bin"):
    loaded = net().initialize()
    loaded.load_params(f_params=work / source, use_safetensors=True)
    assert equal(trained.module_.state_dict(), loaded.module_.state_dict())
print("skorch")

state = {"w": torch.arange(6.0).reshape(2, 3)}
dcp.save(state, storage_writer=HuggingFaceStorageWriter(str(work / "dcp")))
target = {"w": torch.zeros(2, 3)}
dcp.load(target, storage_reader=HuggingFaceStorageReader(str(work / "dcp")))
assert equal(state, target)
assert equal(state, torch.load(next((work / "dcp").glob("*.safetensors"))))
print("torch.distributed.checkpoint")

assert sys.modules["safetensors._safetensors_rust"].safe_open is tensorkeep.safe_open
print("done")

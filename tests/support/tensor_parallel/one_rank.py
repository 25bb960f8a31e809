"""One rank of transformers' tensor parallelism: `one_rank.py FOLDER RANKED`, run in as many processes as ranks.

For each model in FOLDER it loads what transformers gives to this rank, compares it bit by bit with this rank's
directory below RANKED, and computes with the tensors of that directory alone what the whole model would.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor
from transformers import AutoModelForCausalLM
from transformers.core_model_loading import revert_weight_conversion
from transformers.distributed import DistributedConfig

import tensorkeep


def compare(model: Path, ranked: Path, rank: int, n_ranks: int) -> None:
    parallel = AutoModelForCausalLM.from_pretrained(model, distributed_config=DistributedConfig(tp_size=n_ranks))
    local = {
        name: tensor.to_local() if isinstance(tensor, DTensor) else tensor
        for name, tensor in parallel.state_dict().items()
    }
    saved = revert_weight_conversion(parallel, local)
    own = tensorkeep.load(ranked / f"rank-{rank:05}-of-{n_ranks:05}", framework="torch")
    assert saved.keys() - own.keys() <= {"lm_head.weight"}, "only tied tensors are saved once"
    assert own.keys() <= saved.keys()
    for name, tensor in own.items():
        assert torch.equal(tensor, saved[name].contiguous()), (model.name, name, tensor.shape, saved[name].shape)
    tokens = torch.arange(24).reshape(2, 12) % 64
    with torch.no_grad():
        if own.keys() == local.keys():  # the tensors of the directory alone
            for name, tensor in local.items():
                tensor.zero_()
                tensor.copy_(own[name])
        logits = parallel(tokens).logits
        whole = AutoModelForCausalLM.from_pretrained(model)(tokens).logits
    torch.testing.assert_close(logits, whole, rtol=1e-4, atol=1e-5)


def main() -> None:
    rank, n_ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    dist.init_process_group("gloo")
    for model in sorted(Path(sys.argv[1]).iterdir()):
        compare(model, Path(sys.argv[2], model.name), rank, n_ranks)
        print(model.name)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

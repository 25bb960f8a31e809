"""Parameters that DeepSpeed's ZeRO-3 has partitioned: between steps, each rank has a part, and they are empty.

They are recognized by the attributes that DeepSpeed gives them, so DeepSpeed is not needed for that.
"""

from __future__ import annotations

from math import prod

from torch import nn

from tensorkeep.errors import UnsupportedError


def refuse_partitioned(model: nn.Module) -> None:
    """Refuse a model whose parameters are empty because other ranks have their elements."""
    for name, parameter in model.named_parameters():
        if hasattr(parameter, "ds_id") and not parameter.numel() and prod(getattr(parameter, "ds_shape", ())):
            raise UnsupportedError(
                f"parameter `{name}` is partitioned by DeepSpeed's ZeRO-3",
                tensor=name,
                expected=f"shape {list(getattr(parameter, 'ds_shape', ()))}",
                found=f"shape {list(parameter.shape)} on this rank",
                hint="Gather the parameters first, on all ranks: with deepspeed.zero.GatheredParameters("
                "model.parameters(), modifier_rank=0); for a state dict, accelerator.get_state_dict(model)",
            )

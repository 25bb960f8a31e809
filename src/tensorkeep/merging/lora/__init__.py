"""A LoRA adapter of peft added to the model that it was trained on.

- `_settings`: `adapter_config.json`. Pure.
- `_names`: which tensors of an adapter belong together, and what they change in the base model. Pure.
- `_sums`: one changed weight, by rows.
- `_add`: `add_lora`.
"""

from tensorkeep.merging.lora._add import add_lora

__all__ = ["add_lora"]

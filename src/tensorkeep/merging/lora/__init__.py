"""LoRA adapters of peft: added to the model that they were trained on, and extracted from two checkpoints.

- `_settings`: `adapter_config.json`, as it is read. Pure.
- `_names`: which tensors of an adapter belong together, and what they change in the base model. Pure.
- `_orientation`: which weights are transposed, as in GPT-2. Pure.
- `_sums`: changed weights, computed in blocks of rows.
- `_add`: `add_lora`.
- `_factors`: two thin factors of a large matrix. Pure.
- `_layout`: names and settings of an adapter, as they are written. Pure.
- `_extract`: `extract_lora`.
"""

from tensorkeep.merging.lora._add import add_lora
from tensorkeep.merging.lora._extract import ExtractedLayer, ExtractedLora, extract_lora

__all__ = ["ExtractedLayer", "ExtractedLora", "add_lora", "extract_lora"]

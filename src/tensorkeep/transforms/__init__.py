"""Other forms of a model's tensors.

- `arranging/`: tensors cut out of others and joined.
- `_view`: views of such tensors.
- `keymaps/`: `KeyMap`: names and forms in two libraries, as data.
- `experts/`: `stack_experts` and `split_experts`.
- `_vocabulary`: `resize_vocabulary`.
- `_layers`: `drop_layers`.
- `_sparsity`: `sparsify`.
- `_configs`: what changes in `config.json`. Pure.
- `relabelling/`: `relabel`: NVFP4 under the names of another library.
- `_rewrite`: `rewrite`, a checkpoint with other tensors.
"""

from tensorkeep.transforms._configs import ConfigChange, layers_in_config, vocabulary_in_config
from tensorkeep.transforms._layers import drop_layers
from tensorkeep.transforms._rewrite import rewrite
from tensorkeep.transforms._sparsity import sparsify
from tensorkeep.transforms._vocabulary import resize_vocabulary
from tensorkeep.transforms.experts import EXPERT_LAYOUTS, split_experts, stack_experts
from tensorkeep.transforms.keymaps import KeyMap, KeyMapReport
from tensorkeep.transforms.relabelling import Nvfp4Layout, nvfp4_in_config, relabel

__all__ = [
    "EXPERT_LAYOUTS",
    "ConfigChange",
    "KeyMap",
    "KeyMapReport",
    "Nvfp4Layout",
    "drop_layers",
    "layers_in_config",
    "nvfp4_in_config",
    "relabel",
    "resize_vocabulary",
    "rewrite",
    "sparsify",
    "split_experts",
    "stack_experts",
    "vocabulary_in_config",
]

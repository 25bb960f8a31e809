"""transformers, peft and the mixins of huggingface_hub: models in directories, and a Trainer that may be killed.

- `_directory`: what a library saves to a directory, switched at once.
- `_weights`: what libraries save through safetensors, taken over and written with digests.
- `_ties`: weights that are one tensor under several names, where transformers does not know of it.
- `_models`: models saved and loaded.
- `_checkpoints`: the checkpoints of a Trainer: which are whole, which is the newest, which may go.
- `_states`: what a Trainer needs to go on beside the model.
- `_trainer`: the Trainer.
"""

from tensorkeep.integrations.transformers._checkpoints import DamagedCheckpointWarning, get_last_checkpoint
from tensorkeep.integrations.transformers._models import from_pretrained, save_pretrained
from tensorkeep.integrations.transformers._trainer import Trainer

__all__ = [
    "DamagedCheckpointWarning",
    "Trainer",
    "from_pretrained",
    "get_last_checkpoint",
    "save_pretrained",
]

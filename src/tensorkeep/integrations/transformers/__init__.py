"""transformers, peft and the mixins of huggingface_hub: models in directories, and a Trainer that may be killed.

- `_directory`: a directory whose files change all at once when a library saves to it.
- `_weights`: weights that libraries save through safetensors, intercepted and written with digests.
- `_ties`: tied weights that the configuration of a model does not declare.
- `_offline`: models of the Hub that are on this machine already.
- `_remote`: models in buckets and on servers.
- `_models`: models saved and loaded.
- `_checkpoints`: the checkpoints of a Trainer: which are whole, which is the newest, which to remove.
- `_states`: what a Trainer needs to resume besides the model.
- `_buckets`: checkpoints in a bucket.
- `_trainer`: the Trainer.
"""

import tensorkeep.errors

with tensorkeep.errors.importing(
    accelerate="accelerate",
    huggingface_hub="huggingface_hub",
    torch='"tensorkeep[torch]"',
    transformers="transformers",
):
    import accelerate  # noqa: F401
    import huggingface_hub  # noqa: F401
    import torch  # noqa: F401
    import transformers  # noqa: F401

from tensorkeep.integrations.transformers._checkpoints import get_last_checkpoint
from tensorkeep.integrations.transformers._models import from_pretrained, save_pretrained
from tensorkeep.integrations.transformers._trainer import Trainer
from tensorkeep.store import DamagedCheckpointWarning

__all__ = [
    "DamagedCheckpointWarning",
    "Trainer",
    "from_pretrained",
    "get_last_checkpoint",
    "save_pretrained",
]

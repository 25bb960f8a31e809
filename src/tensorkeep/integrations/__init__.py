"""Integrations with other libraries: one folder for each, which is imported by name.

- `transformers/`: transformers, peft and the mixins of huggingface_hub: models in directories, and a Trainer that may
  be killed.
- `accelerate/`: accelerate: the state of a run, saved completely or not at all; and models that are larger than
  memory.
- `skorch/`: skorch: callbacks and functions that save and load a net without a pickle.
- `lightning/`: Lightning: plugins that save and load the checkpoints of a Trainer or of Fabric.
- `keras/`: Keras: a callback that saves a run in a store and continues it.
- `distributed/`: torch.distributed.checkpoint: many ranks save one checkpoint together, and load it in any other
  number.
- `orbax/`: orbax's `CheckpointManager` over a store of safetensors files.
- `vllm/`, `sglang/`: loaders of these inference engines, which read what each rank needs.
"""

__all__: list[str] = []

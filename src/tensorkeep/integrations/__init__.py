"""At home in the libraries that people train with: a folder for each, which is imported by name.

Nothing else of tensorkeep imports anything here, no folder imports another, and each imports its library.

- `skorch/`: callbacks and functions that save and load nets.
- `lightning/`: plugins that save and load the checkpoints of a Trainer.
- `transformers/`: models and tokenizers in directories, and a Trainer whose checkpoints are complete or absent.
- `accelerate/`: the state of an Accelerator, and models that are larger than memory.
- `distributed/`: torch.distributed.checkpoint: what many ranks save and load together.
"""

__all__: list[str] = []

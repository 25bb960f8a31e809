"""Weights for inference engines, which give a model every tensor, though each rank needs only a part of most.

- `_deferred`: tensors that are read where their values are used, and only the parts that are taken.
- `_weights`: the weights of a list of files, with the options of an engine.
"""

from tensorkeep.models.serving._deferred import DeferredTensor, deferred_tensors
from tensorkeep.models.serving._weights import ServedWeights

__all__ = ["DeferredTensor", "ServedWeights", "deferred_tensors"]

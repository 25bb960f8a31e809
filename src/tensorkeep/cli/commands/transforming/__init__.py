"""Commands that give a model's tensors another form.

- `_transformed`: what all of them do.
- `_experts`: `transform stack-experts`, `transform split-experts`.
- `_sizes`: `transform vocabulary`, `transform drop-layers`, `transform sparsify`.
- `_relabel`: `transform relabel`.
"""

from tensorkeep.cli.commands.transforming._experts import split_experts, stack_experts
from tensorkeep.cli.commands.transforming._relabel import relabel
from tensorkeep.cli.commands.transforming._sizes import drop_layers, sparsify, vocabulary

__all__ = ["drop_layers", "relabel", "sparsify", "split_experts", "stack_experts", "vocabulary"]

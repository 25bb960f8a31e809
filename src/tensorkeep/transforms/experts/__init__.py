"""Experts of a mixture: one tensor for each, or all of them stacked.

- `_experts`: `stack_experts` and `split_experts`; their key maps are beside it.
"""

from tensorkeep.transforms.experts._experts import EXPERT_LAYOUTS, split_experts, stack_experts

__all__ = ["EXPERT_LAYOUTS", "split_experts", "stack_experts"]

"""Bounds on the time and memory that a pickle may cost.

- `_budget`: `PickleLimits`, and the memory that copies may take.
- `_keys`: keys whose hash takes forever, or that collide.
- `_graph`: values that take forever to walk through.
- `_containers`: adding items to containers.
"""

from tensorkeep.formats.pickles.limits._budget import DEFAULT_LIMITS, Allowance, PickleLimits
from tensorkeep.formats.pickles.limits._containers import add_items, extend, set_items
from tensorkeep.formats.pickles.limits._graph import DICTS, LISTS, check_graph, children_of
from tensorkeep.formats.pickles.limits._keys import KeyGuard

__all__ = [
    "DEFAULT_LIMITS",
    "DICTS",
    "LISTS",
    "Allowance",
    "KeyGuard",
    "PickleLimits",
    "add_items",
    "check_graph",
    "children_of",
    "extend",
    "set_items",
]

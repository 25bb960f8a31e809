"""Bounds on what a pickle may cost.

- `_budget`: what would cost too much, or never end when it is hashed or walked through.
- `_keys`: what would cost too much, or never end when it is hashed or walked through.
- `_graph`: what would cost too much, or never end when it is hashed or walked through.
- `_containers`: what is put into containers.
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

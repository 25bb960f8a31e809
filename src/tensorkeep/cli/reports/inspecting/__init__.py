"""What `inspect` reports. Pure, but for `_headers`.

- `_headers`: reads the headers of a checkpoint.
- `_report`: headers, counted, filtered and sorted.
- `_state`, `_state_lines`: the values of a training state that are not tensors.
- `_module_tree`: tensors as a tree of modules, with equal layers folded.
- `_tables`, `_json`: all of it, for people and for programs.
- `_statistics`: what `--stats` adds.
"""

from tensorkeep.cli.reports.inspecting._headers import read_report, state_of
from tensorkeep.cli.reports.inspecting._json import inspect_lines
from tensorkeep.cli.reports.inspecting._module_tree import tree_of
from tensorkeep.cli.reports.inspecting._report import Order, Report
from tensorkeep.cli.reports.inspecting._state import value_text
from tensorkeep.cli.reports.inspecting._state_lines import state_lines
from tensorkeep.cli.reports.inspecting._statistics import statistics_lines, statistics_members
from tensorkeep.cli.reports.inspecting._tables import (
    ASCII_GUIDES,
    GUIDES,
    nothing,
    part,
    summary,
    table,
    totals,
    tree,
)

__all__ = [
    "ASCII_GUIDES",
    "GUIDES",
    "Order",
    "Report",
    "inspect_lines",
    "nothing",
    "part",
    "read_report",
    "state_lines",
    "state_of",
    "statistics_lines",
    "statistics_members",
    "summary",
    "table",
    "totals",
    "tree",
    "tree_of",
    "value_text",
]

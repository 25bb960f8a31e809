"""What commands report. Pure.

- `_headers`: reads the headers of a checkpoint.
- `_report`: headers, counted, filtered and sorted.
- `_state`, `_state_lines`: the values of a training state that are not tensors.
- `_module_tree`: tensors as a tree of modules, with equal layers folded.
- `_tables`, `_json`: what `inspect` prints, for people and for programs.
- `_verify`, `_diff`, `_scan`, `_conversion`, `_export`: the results of these commands.
- `_failure`: the error that ended a command.
- `_written`: the checkpoint that a command wrote.
- `_statistics`: what `inspect --stats` shows.
- `plans/`: what a read would cost; what each rank would read.
- `_access_log`: the requests that a server answered.
"""

from tensorkeep.cli.reports._access_log import AccessLog, served_line
from tensorkeep.cli.reports._conversion import Converted
from tensorkeep.cli.reports._diff import Comparison
from tensorkeep.cli.reports._export import Exported
from tensorkeep.cli.reports._failure import Failure
from tensorkeep.cli.reports._headers import read_report, state_of
from tensorkeep.cli.reports._json import inspect_lines
from tensorkeep.cli.reports._module_tree import tree_of
from tensorkeep.cli.reports._report import Order, Report
from tensorkeep.cli.reports._scan import scan_lines
from tensorkeep.cli.reports._state import value_text
from tensorkeep.cli.reports._state_lines import state_lines
from tensorkeep.cli.reports._statistics import statistics_lines, statistics_members
from tensorkeep.cli.reports._tables import ASCII_GUIDES, GUIDES, nothing, part, summary, table, totals, tree
from tensorkeep.cli.reports._verify import Status, Verdict
from tensorkeep.cli.reports._written import Written, read_written
from tensorkeep.cli.reports.plans import memory_lines, plan_lines, rank_lines, read_ranks

__all__ = [
    "ASCII_GUIDES",
    "GUIDES",
    "AccessLog",
    "Comparison",
    "Converted",
    "Exported",
    "Failure",
    "Order",
    "Report",
    "Status",
    "Verdict",
    "Written",
    "inspect_lines",
    "memory_lines",
    "nothing",
    "part",
    "plan_lines",
    "rank_lines",
    "read_ranks",
    "read_report",
    "read_written",
    "scan_lines",
    "served_line",
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

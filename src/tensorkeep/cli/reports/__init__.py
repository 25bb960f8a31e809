"""What commands report. Pure.

- `_conversion`: a checkpoint of any kind as safetensors, and what became of it.
- `_scan`: what files would run if others loaded them.
- `_access_log`: a directory over HTTP, and who read what.
- `_headers`: the headers of what a path stands for.
- `_report`: headers, counted, filtered and sorted. Pure.
- `_state`: what files say of a whole state, and its data that are no tensors. Pure.
- `_state_lines`: what files say of a whole state, and its data that are no tensors. Pure.
- `_module_tree`: tensors as a tree of modules, with equal layers folded. Pure.
- `_tables`: a report as lines for people, and for programs. Pure.
- `_json`: a report as lines for people, and for programs. Pure.
- `_verify`: what `verify` and `diff` found, as lines for people and for programs. Pure.
- `_diff`: what `verify` and `diff` found, as lines for people and for programs. Pure.
- `_written`: what stands in a directory now, said by the commands that write one.
- `_read_plan`: what a read would cost; what each of many ranks would read.
- `_ranks`: what a read would cost; what each of many ranks would read.
"""

from tensorkeep.cli.reports._access_log import AccessLog, served_line
from tensorkeep.cli.reports._conversion import conversion_lines, conversion_members
from tensorkeep.cli.reports._diff import Comparison, comparison_lines, comparison_members
from tensorkeep.cli.reports._headers import read_report, state_of
from tensorkeep.cli.reports._json import document_lines, json_lines
from tensorkeep.cli.reports._module_tree import tree_of
from tensorkeep.cli.reports._ranks import rank_lines, read_ranks
from tensorkeep.cli.reports._read_plan import plan_lines
from tensorkeep.cli.reports._report import Order
from tensorkeep.cli.reports._scan import report_lines
from tensorkeep.cli.reports._state import value_text
from tensorkeep.cli.reports._state_lines import state_lines
from tensorkeep.cli.reports._tables import ASCII_GUIDES, GUIDES, nothing, part, summary, table, totals, tree
from tensorkeep.cli.reports._verify import Status, Verdict, verdict_lines, verdict_members
from tensorkeep.cli.reports._written import show_written

__all__ = [
    "ASCII_GUIDES",
    "GUIDES",
    "AccessLog",
    "Comparison",
    "Order",
    "Status",
    "Verdict",
    "comparison_lines",
    "comparison_members",
    "conversion_lines",
    "conversion_members",
    "document_lines",
    "json_lines",
    "nothing",
    "part",
    "plan_lines",
    "rank_lines",
    "read_ranks",
    "read_report",
    "report_lines",
    "served_line",
    "show_written",
    "state_lines",
    "state_of",
    "summary",
    "table",
    "totals",
    "tree",
    "tree_of",
    "value_text",
    "verdict_lines",
    "verdict_members",
]

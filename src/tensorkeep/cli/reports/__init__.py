"""What commands report. Pure.

- `inspecting/`: headers, values, trees and statistics, as `inspect` shows them.
- `plans/`: what a read would cost; what each rank would read.
- `_verify`, `_check`, `_diff`, `_scan`, `_conversion`, `_export`: the results of these commands.
- `_patched`: the patch that a command wrote.
- `_published`: what a push sent.
- `_written`: the checkpoint that a command wrote.
- `_ranks_written`: the directories of ranks that a command wrote.
- `_extracted`: the adapter that a command wrote.
- `_access_log`: the requests that a server answered.
- `_failure`: the error that ended a command.
"""

from tensorkeep.cli.reports._access_log import AccessLog, served_line
from tensorkeep.cli.reports._check import Checked
from tensorkeep.cli.reports._conversion import Converted
from tensorkeep.cli.reports._diff import Comparison
from tensorkeep.cli.reports._export import Exported
from tensorkeep.cli.reports._extracted import Extracted
from tensorkeep.cli.reports._failure import Failure
from tensorkeep.cli.reports._patched import Patched
from tensorkeep.cli.reports._published import Published
from tensorkeep.cli.reports._ranks_written import DividedForRanks
from tensorkeep.cli.reports._scan import scan_lines
from tensorkeep.cli.reports._verify import Status, Verdict
from tensorkeep.cli.reports._written import Written, read_written
from tensorkeep.cli.reports.inspecting import (
    ASCII_GUIDES,
    GUIDES,
    Order,
    Report,
    inspect_lines,
    nothing,
    part,
    read_report,
    state_lines,
    state_of,
    statistics_lines,
    statistics_members,
    summary,
    table,
    totals,
    tree,
    tree_of,
    value_text,
)
from tensorkeep.cli.reports.plans import memory_lines, plan_lines, rank_lines, read_ranks

__all__ = [
    "ASCII_GUIDES",
    "GUIDES",
    "AccessLog",
    "Checked",
    "Comparison",
    "Converted",
    "DividedForRanks",
    "Exported",
    "Extracted",
    "Failure",
    "Order",
    "Patched",
    "Published",
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

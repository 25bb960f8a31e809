"""The page: a plot and a table for each group, the missed targets, and a table of all figures."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby

from benchmarks.case import AtLeast, Case, Contender
from benchmarks.results import CaseResult

__all__ = ["case_line", "page"]

_HEADINGS = {
    "load": "Loading",
    "libraries": "Loading into other array libraries",
    "save": "Saving",
    "background": "Saving in the background",
    "open": "Opening",
    "checking": "Checking",
    "slice": "Reading part of a tensor",
    "blocks": "Checked slices",
    "trust": "Signatures and encryption",
    "checkpoint": "Sharded checkpoints",
    "merging": "Computing models",
    "store": "Steps of a run",
    "model": "Loading into a model",
    "pickles": "Files of `torch.save`",
    "formats": "Files of other libraries",
    "patches": "Patches",
    "trainers": "Training libraries",
    "remote": "From a web server",
    "serve": "Serving",
    "viewing": "Viewing",
    "distributed": "Many ranks",
    "meshes": "JAX on many hosts",
    "ranks": "Planning for many ranks",
    "startup": "Startup",
}
_MAX_TITLES = 3
"""Titles of cases with one remark that are all written."""

_INTRODUCTION = """\
# Benchmarks

`python -m benchmarks`, run from the project root, measures everything on this page and writes it; with
`--only 'load/*'` it measures a part again. Every section says when it was measured, and the system's load average
just before, which includes earlier sections if they were measured right before it.

- tensorkeep and its peers run each case in the same process, in turns. The order changes with each round, so that
  each follows each other about equally often.
- **Ratio** is the peer's time divided by ours: the median over the rounds, with quartiles in brackets. It compares
  only times measured back to back, so it is not the ratio of the two median times beside it.
- The median decides whether a target is met. *Narrowly* means that the target lies between the quartiles, so another
  run may well come out differently.
- **Limit** is the bare minimum of work: moving the same bytes, or making as many objects. It is measured like
  everything else, so if a contender beats it, the two are equal within the accuracy of the measurement.
- **Memory** is what a fresh process has resident at the peak of one call, beyond what it had before: tensorkeep's,
  then the peer's. Pages of a mapped file count once touched, although the system can reclaim them.
"""


def page(results: list[CaseResult], cases: list[Case]) -> str:
    """Write the page.

    Args:
        results: The results, with cases of a group adjacent.
        cases: All cases; the page says which have no result.

    Returns:
        The page in Markdown.
    """
    parts = [_INTRODUCTION, _machines(results)]
    for group, members in groupby(results, key=lambda result: result.case.group):
        parts.append(_group(_HEADINGS[group], list(members)))
    measured = {result.case.name for result in results}
    parts.append(_unmeasured([case for case in cases if case.name not in measured]))
    parts.extend((_shortfalls(results), _details(results)))
    return "\n".join(part for part in parts if part)


def case_line(result: CaseResult) -> str:
    """Summarize a case in one line for the terminal."""
    memory = f", memory {_memory(result)}" if result.memory else ""
    target = f", target {_targets(result.case)}" if result.case.target else ""
    return (
        f"{result.case.name:24} {_plain(_ratio(result))}: {_time(result.time_s(result.case.ours))},"
        f" {result.case.peers[0].name} {_time(result.time_s(result.case.peers[0]))}{target}{memory}"
    )


def _machines(results: list[CaseResult]) -> str:
    """Describe all machines, and all versions of the software."""
    machines = dict.fromkeys(f"{result.machine.hardware}; {result.machine.system}" for result in results)
    software = dict.fromkeys(name for result in results for name in result.machine.software.split(", "))
    measured = [*(f"- {machine}" for machine in machines), f"- {', '.join(software)}"]
    return "\n".join(["Measured on:\n", *measured, "\nRatios are more reproducible than times.\n"])


def _circumstances(results: list[CaseResult]) -> str:
    numbers = [len(result.times_s[result.case.ours.name]) for result in results]
    rounds = " to ".join(str(number) for number in sorted({min(numbers), max(numbers)}))
    days = " and ".join(f"{day:%d %B %Y}" for day in sorted({result.when.date() for result in results}))
    processors = " and ".join(sorted({result.machine.hardware.partition(",")[0] for result in results}))
    load = max(result.machine.n_busy for result in results)
    return f"{days}, {processors}; {rounds} rounds of each case; the load average before was {load:.1f}.\n"


def _group(heading: str, results: list[CaseResult]) -> str:
    rows = [
        (
            result.case.title,
            _targets(result.case),
            _time(result.time_s(result.case.ours)),
            _named_time(result, result.case.peers[0]),
            _ratio(result),
            _named_time(result, result.case.limits[0]) if result.case.limits else "",
            _memory(result),
        )
        for result in results
    ]
    head = ("Case", "Target", "tensorkeep", "Peer", "Ratio", "Limit", "Memory")
    remarks = _remarks(results)
    picture = f"![{heading}: how many times as fast as others](assets/benchmarks/{results[0].case.group}.svg)\n"
    return "\n".join([f"## {heading}\n", _circumstances(results), picture, *_table(head, rows), "", *remarks, ""])


def _remarks(results: list[CaseResult]) -> list[str]:
    """Write each remark once, after the titles of its cases."""
    titles: dict[str, list[str]] = {}
    for result in results:
        if result.case.remark:
            titles.setdefault(result.case.remark, []).append(result.case.title)
    return [f"- {_some(same)}: {remark}" for remark, same in titles.items()]


def _some(titles: list[str]) -> str:
    shown = titles if len(titles) <= _MAX_TITLES else titles[:1]
    more = len(titles) - len(shown)
    return "; ".join(shown) + (f"; and {more} more such cases" if more else "")


def _unmeasured(cases: list[Case]) -> str:
    lines = [f"- {_HEADINGS[case.group]}: {case.title}" for case in cases]
    return "\n".join(["## Not measured yet\n", *lines, ""]) if lines else ""


def _shortfalls(results: list[CaseResult]) -> str:
    lines = [line for result in results for line in _shortfall_lines(result)]
    return "\n".join(["## Targets not met\n", *lines, ""]) if lines else ""


def _shortfall_lines(result: CaseResult) -> Iterator[str]:
    case = result.case
    if result.verdict in {"missed", "narrowly missed"}:
        yield f"- {case.title}: {_plain(_ratio(result))}; the target is {_target(case)}."
    for name, ratio, target in result.other_shortfalls:
        yield f"- {case.title}: {ratio:.2f}x beside {name}; the target is {target:g}x."
    if result.takes_too_much:
        yield f"- {case.title}: {_memory(result)} of memory; the target is {_memory_target(case)}."


def _details(results: list[CaseResult]) -> str:
    head = ("Case", "By", "Median", "Quartiles", "Against tensorkeep", "Memory", "Read from disk")
    rows = [row for result in results for row in _contender_rows(result)]
    return "\n".join(["## All figures\n", *_table(head, rows), ""])


def _contender_rows(result: CaseResult) -> Iterator[tuple[str, ...]]:
    case = result.case
    for contender in case.contenders:
        times = result.quartiles_s(contender)
        taken = result.memory.get(contender.name)
        yield (
            case.title if contender is case.ours else "",
            contender.name + (" (limit)" if contender in case.limits else ""),
            _time(times.middle),
            f"{_time(times.low)} to {_time(times.high)}",
            "" if contender is case.ours else f"{result.ratio_to(contender).middle:.2f}x",
            _nbytes(taken.extra_nbytes) if taken else "",
            _nbytes(taken.disk_nbytes) if taken and taken.disk_nbytes else "",
        )


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> list[str]:
    return [_row(head), _row(("---",) * len(head)), *map(_row, rows)]


def _row(cells: tuple[str, ...]) -> str:
    return f"| {' | '.join(cells)} |"


def _target(case: Case) -> str:
    if case.target is None:
        return "none"
    if isinstance(case.target, AtLeast):
        return f"{case.target.ratio:g}x"
    return f"at most {_time(case.target.seconds)} more"


def _targets(case: Case) -> str:
    peers = {peer.name for peer in case.peers}
    others = [f"{target.ratio:g}x of {name}" for name, target in case.other_targets.items() if name in peers]
    memory = [] if case.max_extra_nbytes is None else [_memory_target(case)]
    return ", ".join([_target(case), *others, *memory])


def _memory_target(case: Case) -> str:
    return f"at most {_nbytes(case.max_extra_nbytes or 0)}"


def _ratio(result: CaseResult) -> str:
    peer = result.case.peers[0]
    verdict = f", {result.verdict}" if result.verdict else ""
    if result.case.target is None or isinstance(result.case.target, AtLeast):
        ratio = result.ratio_to(peer)
        return f"**{ratio.middle:.2f}x** ({ratio.low:.2f} to {ratio.high:.2f}){verdict}"
    excess = result.excess_over(peer)
    return f"**{_time(excess.middle)} more** ({_time(excess.low)} to {_time(excess.high)}){verdict}"


def _plain(text: str) -> str:
    return text.replace("**", "")


def _memory(result: CaseResult) -> str:
    case = result.case
    if not result.memory:
        return ""
    ours, peer = (result.memory[contender.name].extra_nbytes for contender in (case.ours, case.peers[0]))
    return f"{_nbytes(ours)}, {_nbytes(peer)}"


def _named_time(result: CaseResult, contender: Contender) -> str:
    return f"{contender.name}: {_time(result.time_s(contender))}"


def _time(seconds: float) -> str:
    for unit, scale in (("s", 1.0), ("ms", 1e-3)):
        if abs(seconds) >= scale:
            return f"{_digits(seconds / scale)} {unit}"
    return f"{_digits(seconds / 1e-6)} us"


def _nbytes(nbytes: int) -> str:
    return f"{nbytes / 1e6:,.{0 if nbytes >= 10**7 else 1}f} MB"


def _digits(value: float) -> str:
    """Format a number with three significant digits, or more before the point."""
    places = 0 if abs(value) >= 99.95 else 1 if abs(value) >= 9.995 else 2
    return f"{value:,.{places}f}"

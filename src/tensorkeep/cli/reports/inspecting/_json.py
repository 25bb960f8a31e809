"""What `inspect --json` prints: everything, with stable keys, numbers as numbers. Pure.

    {
      "path": "model.safetensors",
      "format": "safetensors",
      "index": null,
      "shards": [
        {"shard": "model.safetensors", "nbytes": 90868376, "data_start": 11416, "n_tensors": 104}
      ],
      "splits": {},
      "file_nbytes": 90868376,
      "header_nbytes": 11408,
      "data_start": 11416,
      "data_nbytes": 90856960,
      "n_tensors": 104,
      "n_elements": 22713728,
      "n_misaligned": 0,
      "n_unknown": 0, "unknowns": {}, "strings": {},
      "dangers": {},
      "quantized": null,
      "digests": "none",
      "metadata": {"format": "pt"},
      "state": null,
      "shown": {"n_tensors": 104, "n_elements": 22713728, "data_nbytes": 90856960},
      "dtypes": [
        {"dtype": "F32", "n_tensors": 103, "n_elements": 22713216, "nbytes": 90852864},
        …
      ],
      "tensors": [
        {"name": "…", "dtype": "F32", "shape": [384], "n_elements": 384, "nbytes": 1536,
         "data_offsets": [0, 1536], "shard": "model.safetensors"},
        …
      ]
    }

with one tensor per line. Everything before `shown` covers all files: the only one, or those in `index`; with several,
`data_start` is null and the counts are totals. `splits` lists the pieces of tensors that are split over shards; the
pieces themselves are among the tensors. `digests` is "all", "some" or "none" of the tensors, or "stale" if a header
does not match its digests. `shown`, `dtypes` and `tensors` cover the tensors that pass the filter, if there is one:
`shown` has their totals, `dtypes` the totals by dtype, most bytes first. Bytes count from the start of a file, except
`data_offsets`: half-open ranges from the `data_start` of the shard. `state` is null if no training state was saved;
otherwise it has the version, the library of the tensors, and

    "n_aliases": 1, "n_values": 1, "problem": null,
    "aliases": {"head.weight": {"of": "embed.weight"}},
    "values": {"epoch": 3}

which say which tensors are views of others, and give all other values by dotted name: JSON values as they are,
sequences and sets as arrays, anything else as text. `problem` says why part of it is unreadable. A tensor that is a
view has the member `of`, 0 bytes and an empty range; memory that only views share has `n_sharing`. By name, `strings`
are arrays of strings, `unknowns` what is not read, and `dangers` objects in pickles that could only do harm.
`quantized` is null if no tensor is quantized; otherwise it has the method that the configuration names, how many
tensors are quantized in which way (`n_by_scheme`), and the number of findings that `tensorkeep check` would list.

With `--stats`, the member `statistics` comes last, with one tensor per line: the fields of
`tensorkeep.TensorStatistics`, with null for numbers that are infinite.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from tensorkeep.cli.reports.inspecting._report import Report, Totals
from tensorkeep.cli.reports.inspecting._state_lines import state_members
from tensorkeep.cli.reports.inspecting._statistics import statistics_members
from tensorkeep.cli.terminal import json_lines

if TYPE_CHECKING:
    from tensorkeep.formats import FileDescription
    from tensorkeep.measuring import TensorStatistics


def inspect_lines(
    report: Report, pattern: str | None = None, statistics: Mapping[str, TensorStatistics] | None = None
) -> Iterator[str]:
    """Write a report as JSON, with statistics if there are any."""
    measured = {} if statistics is None else {"statistics": statistics_members(statistics)}
    return json_lines({
        "path": report.path,
        "format": report.form,
        "index": report.index,
        "shards": map(_shard, report.files),
        "splits": report.splits,
        "file_nbytes": report.file_nbytes,
        "header_nbytes": report.header_nbytes,
        "data_start": report.data_start,
        "data_nbytes": report.whole.nbytes,
        "n_tensors": report.whole.n_tensors,
        "n_elements": report.whole.n_elements,
        "n_misaligned": report.n_misaligned,
        "n_unknown": len(report.unknowns),
        "unknowns": report.unknowns,
        "strings": report.strings,
        "dangers": report.dangers,
        "quantized": _quantized(report),
        "digests": report.digests,
        "metadata": report.metadata,
        "state": state_members(report.state, pattern=pattern),
        "shown": _shown(report.totals),
        "dtypes": _dtypes(report),
        "tensors": _tensors(report),
        **measured,
    })


def _quantized(report: Report) -> dict[str, object] | None:
    found = report.quantized
    if found is None:
        return None
    return {"method": found.method, "n_by_scheme": found.n_by_scheme, "n_findings": len(found.findings)}


def _shard(content: FileDescription) -> dict[str, object]:
    return {
        "shard": content.file,
        "nbytes": content.file_nbytes,
        "data_start": content.data_start,
        "n_tensors": len(content.entries),
    }


def _shown(totals: Totals) -> dict[str, int]:
    return {"n_tensors": totals.n_tensors, "n_elements": totals.n_elements, "data_nbytes": totals.nbytes}


def _dtypes(report: Report) -> Iterator[dict[str, object]]:
    for dtype, sums in report.totals_by_dtype().items():
        yield {
            "dtype": dtype,
            "n_tensors": sums.n_tensors,
            "n_elements": sums.n_elements,
            "nbytes": sums.nbytes,
        }


def _tensors(report: Report) -> Iterator[dict[str, object]]:
    for name, entry in report.shown.items():
        yield {
            "name": name,
            "dtype": entry.dtype,
            "shape": entry.shape,
            "n_elements": entry.n_elements,
            "nbytes": entry.nbytes,
            "data_offsets": entry.data_offsets,
            "shard": report.file_of(name),
            **_sharing(report, name),
        }


def _sharing(report: Report, name: str) -> dict[str, object]:
    if report.state is None:
        return {}
    if name in report.state.views:
        return {"of": report.state.views[name].alias.of}
    return {"n_sharing": report.state.storages[name]} if name in report.state.storages else {}

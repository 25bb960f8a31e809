"""A report as JSON: everything, with stable keys, numbers as numbers, one tensor per line. Pure.

    {
      "path": "model.safetensors",
      "format": "safetensors",
      "file_nbytes": 90868376,
      "header_nbytes": 10296,
      "data_start": 10304,
      "data_nbytes": 90858072,
      "n_tensors": 104,
      "n_elements": 22713728,
      "n_misaligned": 0,
      "metadata": {"format": "pt"},
      "shown": {"n_tensors": 104, "n_elements": 22713728, "data_nbytes": 90858072},
      "dtypes": [
        {"dtype": "F32", "n_tensors": 103, "n_elements": 22713216, "nbytes": 90852864},
        …
      ],
      "tensors": [
        {"name": "…", "dtype": "F32", "shape": [384], "n_elements": 384, "nbytes": 1536, "data_offsets": [0, 1536]},
        …
      ]
    }

Everything before `shown` is about the whole file. `shown`, `dtypes` and `tensors` are about the tensors that the
filter lets through, all of them if there is none: `shown` has their sums, `dtypes` the sums by dtype, most bytes
first. Bytes count from the start of the file, except `data_offsets`, which are half-open ranges from `data_start`.
The text is ASCII: whatever a file has for names, a terminal shows it and obeys none of it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator

from tensorkeep.cli._report import Report, Totals

__all__ = ["json_lines"]


def json_lines(report: Report) -> Iterator[str]:
    """Write a report as JSON.

    Args:
        report: The file.

    Yields:
        The lines, without line ends.
    """
    facts = {
        "path": report.path,
        "format": "safetensors",
        "file_nbytes": report.file_nbytes,
        "header_nbytes": report.header_nbytes,
        "data_start": report.data_start,
        "data_nbytes": report.whole.nbytes,
        "n_tensors": report.whole.n_tensors,
        "n_elements": report.whole.n_elements,
        "n_misaligned": report.n_misaligned,
        "metadata": report.metadata,
    }
    yield "{"
    for key, value in facts.items():
        yield f"  {_encoded(key)}: {_encoded(value)},"
    yield f'  "shown": {_encoded(_shown(report.totals))},'
    yield from _array("dtypes", _dtypes(report), end=",")
    yield from _array("tensors", _tensors(report), end="")
    yield "}"


def _array(key: str, objects: Iterable[dict[str, object]], *, end: str) -> Iterator[str]:
    yield f"  {_encoded(key)}: ["
    pending = None
    for value in objects:
        if pending is not None:
            yield pending + ","
        pending = f"    {_encoded(value)}"
    if pending is not None:
        yield pending
    yield f"  ]{end}"


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
        }


def _encoded(value: object) -> str:
    return json.dumps(value).replace("\x7f", r"\u007f")  # the one control character that JSON lets stand

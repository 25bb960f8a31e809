"""How tensors are quantized, and what is wrong with that."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Final

from tensorkeep.checking._findings import CheckFinding, finding_about
from tensorkeep.checking._names import Expected, Headers
from tensorkeep.errors import FormatError
from tensorkeep.quantized import LayoutFinding, Layouts, layouts
from tensorkeep.tensors import LazyTensors

_PACKED: Final = frozenset(("I32", "U8", "I8", "F8_E4M3", "F8_E5M2"))
"""Dtypes that parts of quantized tensors have."""

_MESSAGES: Final = {
    "missing": "quantized tensors lack a part, without which their numbers are not known",
    "contradiction": "parts of quantized tensors do not fit each other",
    "reciprocal": "quantized tensors have a scale and its reciprocal: loaders will not agree on one",
    "overlap": "groups of the configuration name the same modules and differ",
    "declared": "the configuration and the tensors do not agree on how many elements share a scale",
    "ignored": "the configuration and the tensors do not agree on what is quantized",
    "unsupported": "quantized in a way that is not known here, so it was not checked",
}


def quantized_in(tensors: LazyTensors, headers: Headers) -> Layouts | None:
    """Recognize the quantized tensors of a checkpoint; None if no dtype is one that they have."""
    if any(header.dtype in _PACKED for header in headers.values()):
        with suppress(FormatError):  # of the configuration, which is for others to say
            return layouts(tensors)
    return None


def examine_quantized(found: Layouts) -> Iterator[CheckFinding]:
    """Find what is wrong with quantized tensors, in one finding for each sort."""
    sorts: dict[str, list[LayoutFinding]] = {}
    for finding in found.findings:
        sorts.setdefault(finding.kind, []).append(finding)
    for kind, alike in sorts.items():
        is_known = kind != "unsupported"
        yield finding_about(
            f"quantized-{kind}",
            "note" if not is_known else "error" if any(finding.is_error for finding in alike) else "warning",
            _MESSAGES[kind],
            [finding.tensor for finding in alike if finding.tensor is not None],
            found=str(alike[0]),
            advice="tensorkeep.quantized.layouts(...).findings lists each of them" if len(alike) > 1 else None,
        )


def plain_headers(headers: Headers, found: Layouts | None) -> Headers:
    """Return headers in which quantized tensors have their true shapes, and their parts are left out."""
    if found is None or not found.tensors:
        return headers
    parts = found.part_names() | found.leftovers
    plain = {name: header for name, header in headers.items() if name not in parts}
    return plain | {
        name: Expected(headers[one.parts["data"]].dtype, one.shape) for name, one in found.tensors.items()
    }

"""The steps of a store as HTML for notebooks. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from tensorkeep.markup import Markup, page, table
from tensorkeep.store._steps import StepListing
from tensorkeep.texts import counted, size_text


def steps_html(root: str, listing: Sequence[StepListing]) -> Markup:
    """Return the steps, the highest first."""
    rows = (
        (
            str(each.found.step),
            ", ".join(f"{name} = {value:.6g}" for name, value in each.found.metrics.items()),
            size_text(each.files.nbytes),
            ", ".join(_marks(each)),
        )
        for each in reversed(listing)
    )
    headings = ("step", "metrics", "size", "")
    return page(root, ["CheckpointStore", counted(len(listing), "step")], table(headings, rows, len(listing), (0, 2)))


def _marks(each: StepListing) -> list[str]:
    marks = {each.found.condition: each.found.condition != "whole", "latest": each.is_latest, "best": each.is_best}
    return [mark for mark, is_set in marks.items() if is_set]

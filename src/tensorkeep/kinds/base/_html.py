"""What is open beside plain tensors, for notebooks. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from tensorkeep.markup import Markup, folded, table
from tensorkeep.texts import counted

if TYPE_CHECKING:
    from tensorkeep.quantized import Layouts


def folded_others(
    unknowns: Mapping[str, Any], strings: Mapping[str, Any], quantized: Layouts | None
) -> Iterator[Markup]:
    """Yield tables that unfold."""
    for found, what in ((unknowns, "unknown object"), (strings, "string array")):
        if found:
            rows = ((name, str(value)) for name, value in found.items())
            yield folded(counted(len(found), what), table(("name", "what it is"), rows, len(found)))
    if quantized is not None:
        schemes = [(f"{n_tensors:,}", scheme) for scheme, n_tensors in quantized.n_by_scheme.items()]
        title = counted(len(quantized.tensors), "quantized tensor")
        yield folded(title, table(("tensors", "how"), schemes, len(schemes)))

"""What is shown of open checkpoints, as values that JSON has. Nothing here knows of HTTP.

- `_catalog`: all tensors as columns, from headers alone. Pure.
- `_facts`: what a checkpoint has beside its tensors.
- `_outline`: the nested value that was saved, one level at a time. Pure.
- `_tensor`: the facts of one tensor.
- `_statistics`: what the numbers of a tensor are like.
- `_survey`: the same of all tensors.
- `_pictures`: heatmaps, lines and tables of values.
- `_largest`: the largest eigenvalues of large matrices. Pure.
- `_spectrum`: singular values.
- `_pairs`: two tensors, number by number.
- `_comparison`: two checkpoints, tensor by tensor.
- `_steps`: the steps of a store.
- `_checks`: whether it is whole, and what other programs would run.
"""

from tensorkeep.viewing.answers._catalog import Catalog, catalog
from tensorkeep.viewing.answers._checks import scan_report, verification
from tensorkeep.viewing.answers._comparison import Comparison
from tensorkeep.viewing.answers._facts import facts
from tensorkeep.viewing.answers._outline import outline
from tensorkeep.viewing.answers._pairs import difference, refuse_other_shape
from tensorkeep.viewing.answers._pictures import heatmap, line, values
from tensorkeep.viewing.answers._spectrum import refuse_large, spectrum
from tensorkeep.viewing.answers._statistics import measured
from tensorkeep.viewing.answers._steps import steps
from tensorkeep.viewing.answers._survey import survey
from tensorkeep.viewing.answers._tensor import tensor_facts

__all__ = [
    "Catalog",
    "Comparison",
    "catalog",
    "difference",
    "facts",
    "heatmap",
    "line",
    "measured",
    "outline",
    "refuse_large",
    "refuse_other_shape",
    "scan_report",
    "spectrum",
    "steps",
    "survey",
    "tensor_facts",
    "values",
    "verification",
]

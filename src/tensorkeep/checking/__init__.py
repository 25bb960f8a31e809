"""Do these weights make sense?

- `_findings`: what a check finds, as a value. Pure.
- `_names`: names of tensors: what wrappers and other programs make of them. Pure.
- `_layers`: layers of one model compared with each other. Pure.
- `_settings`: what `config.json` says about tensors. Pure.
- `_quantized`: how tensors are quantized, and what their scales are.
- `_comparison`: a checkpoint compared with the tensors that a model has. Pure.
- `_architecture`: those tensors, from a config: a program of its own, which uses transformers.
- `_reference`: what `against=` means.
- `_division`: how a model's own plan divides its tensors among ranks.
- `_ties`: tensors that are equal, or should be.
- `_files`: the files of a checkpoint.
- `_pipeline`: directories of several models. Pure.
- `_by_executor`: statistics that workers compute.
- `_numbers`: what the elements say: NaNs, infinities, zeros.
- `_report`: the result.
- `_check`: `check`.
"""

from tensorkeep.checking._check import check
from tensorkeep.checking._comparison import Fit
from tensorkeep.checking._division import Divided, ModelDivision, division_by_library
from tensorkeep.checking._findings import SEVERITIES, CheckFinding
from tensorkeep.checking._report import CheckReport

__all__ = [
    "SEVERITIES",
    "CheckFinding",
    "CheckReport",
    "Divided",
    "Fit",
    "ModelDivision",
    "check",
    "division_by_library",
]

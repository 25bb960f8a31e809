"""PaddlePaddle's files: state dicts in pickles (`.pdparams`, `.pdopt`), and streams of tensors (`.pdiparams`).

- `_state_dict`: what Paddle puts into the dict that it pickles, taken out again.
- `_parameters`: a stream of tensors without names.
- `_program`: their names, from the program beside it.
- `_operators`: which operators of programs only compute, and what others do.
- `_deeds`: what a program does besides computing.
"""

from tensorkeep.formats.paddle._deeds import JSON_MAGIC, deeds_of_json, deeds_of_message
from tensorkeep.formats.paddle._parameters import is_parameters, parse_parameters
from tensorkeep.formats.paddle._program import Shapes, parse_json_program, parse_program, structured_names
from tensorkeep.formats.paddle._state_dict import without_marks

__all__ = [
    "JSON_MAGIC",
    "Shapes",
    "deeds_of_json",
    "deeds_of_message",
    "is_parameters",
    "parse_json_program",
    "parse_parameters",
    "parse_program",
    "structured_names",
    "without_marks",
]

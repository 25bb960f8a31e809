"""PaddlePaddle's files: state dicts in pickles (`.pdparams`, `.pdopt`).

- `_state_dict`: what Paddle puts into the dict that it pickles, taken out again.
"""

from tensorkeep.formats.paddle._state_dict import without_marks

__all__ = ["without_marks"]

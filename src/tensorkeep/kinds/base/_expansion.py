"""The bound on tensors that share bytes of a file: a small file can declare a thousand views of a few bytes."""

from __future__ import annotations

from typing import Final

from tensorkeep.errors import LimitError
from tensorkeep.limits import MAX_EXPANDED_NBYTES

_MAX_TIMES_FILE: Final = 16
"""How many times the size of its files all tensors may take together; tied weights take two or three times."""


def refuse_expansion(nbytes: int, stored_nbytes: int, path: str, hint: str) -> None:
    """Refuse tensors of so many bytes from files of so many bytes."""
    if nbytes > max(MAX_EXPANDED_NBYTES, _MAX_TIMES_FILE * stored_nbytes):
        raise LimitError(
            "the tensors take many times the size of the file",
            path=path,
            expected=f"at most {_MAX_TIMES_FILE} times {stored_nbytes:,} bytes",
            found=f"{nbytes:,}",
            hint=hint,
        )

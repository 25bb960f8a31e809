"""The bound on tensors that share bytes of a file: a small file can declare a thousand views of a few bytes."""

from __future__ import annotations

from typing import Final

from tensorkeep.errors import LimitError
from tensorkeep.limits import MAX_EXPANDED_NBYTES

_MAX_TIMES_FILE: Final = 16
"""How many times the size of its files all tensors may take together; tied weights take two or three times."""


def refuse_expansion(nbytes: int, stored_nbytes: int, path: str, hint: str, read_nbytes: int | None = None) -> None:
    """Refuse tensors of so many bytes from files of so many bytes.

    Where tensors are compressed, `read_nbytes` are read for them: these are too many if tensors share bytes.
    """
    taken_nbytes = nbytes if read_nbytes is None else read_nbytes
    if nbytes > MAX_EXPANDED_NBYTES and taken_nbytes > _MAX_TIMES_FILE * stored_nbytes:
        raise LimitError(
            "the tensors take many times the size of the file",
            path=path,
            expected=f"at most {_MAX_TIMES_FILE} times {stored_nbytes:,} bytes",
            found=f"{taken_nbytes:,}",
            hint=hint,
        )

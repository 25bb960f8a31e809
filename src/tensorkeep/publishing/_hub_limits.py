"""What the Hub advises against, and what to do instead. Pure.

Its page on storage limits advises files under 20 GB. According to huggingface_hub, plain HTTP serves files up to
50 GB (`MAX_HTTP_DOWNLOAD_SIZE`), and one commit takes up to 25,000 large files (`create_commit`).
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Final

from tensorkeep.errors import LimitError
from tensorkeep.texts import listed, size_text

_ADVISED_NBYTES: Final = 20 * 10**9
_SERVED_NBYTES: Final = 50 * 10**9
_REPOSITORY_NBYTES: Final = 10**12
_MAX_FILES: Final = 25_000


class HubLimitWarning(UserWarning):
    """Something larger than the Hub advises."""


def heed_limits(sizes: Mapping[str, int], url: str) -> None:
    """Warn about files that are too large, and refuse too many; `sizes` are in bytes, by name."""
    if len(sizes) > _MAX_FILES:
        raise LimitError(
            "too many files for one commit",
            path=url,
            expected=f"at most {_MAX_FILES:,}",
            found=f"{len(sizes):,}",
            hint="Push fewer, larger shards: max_shard_size='5GB' (--max-shard-size 5GB)",
        )
    large = [f"{name} ({size_text(nbytes)})" for name, nbytes in sizes.items() if nbytes > _ADVISED_NBYTES]
    if large:
        worst = max(sizes.values()) > _SERVED_NBYTES
        limit = ", and serves none over 50 GB to programs that read over plain HTTP" if worst else ""
        _warn(
            f"{listed(large)}: the Hub advises files under 20 GB{limit}. Push with max_shard_size='5GB'"
            " (--max-shard-size 5GB); split_large=True (--split-large) also cuts single tensors of that size"
        )
    total = sum(sizes.values())
    if total > _REPOSITORY_NBYTES:
        _warn(f"{size_text(total)}: ask the Hub's team before you publish more than 1 TB in one repository")


def _warn(text: str) -> None:
    warnings.warn(text, HubLimitWarning, stacklevel=5)

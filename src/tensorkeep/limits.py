"""Every safety bound, with its reason and its precedent.

A bound keeps hostile or broken bytes from costing more than honest ones. Those that a caller may raise are
defaults of a keyword argument with the same name.
"""

from __future__ import annotations

from typing import Final

MAX_HEADER_NBYTES: Final = 100_000_000
"""Bytes of a safetensors header. The reference reader refuses more; about 1,000,000 tensors fit."""

MAX_INDEX_NBYTES: Final = 40_000_000
"""Bytes of the index of a sharded checkpoint; about 400,000 tensors fit. The worst text costs 32 times its length."""

MAX_LISTED_NDIM: Final = 1024
"""Dimensions of a tensor that can be listed; NumPy holds 64. The product of a million extents takes hours."""

MAX_U64: Final = 2**64 - 1
"""Largest extent, element count or bit count; the reference computes them in 64 unsigned bits."""

READ_NBYTES: Final = 16 * 2**20
"""Bytes of one read where many are done side by side: the disk streams, and the work can be shared out."""

PIECE_NBYTES: Final = 4 * 2**20
"""Bytes of one piece of a mapped file that is looked at once, such as for a digest: it stays in the caches."""

COPIED_PIECE_NBYTES: Final = 2**19
"""Bytes of one such piece that must be copied from the system first; more leaves the second cache and is slower."""

PACK_NBYTES: Final = 2**20
"""Bytes of one piece when a tensor must be copied to be written (not contiguous, or on a device).

Some ten pieces live at once in the C library's heap.
"""

WRITE_NBYTES: Final = 8 * 2**20
"""Bytes that are gathered for one write: long enough to stream, short enough that an interrupt is heard."""

HASHED_APART_NBYTES: Final = 2**20
"""Bytes from which another thread makes the digest of a tensor while it is written; handing it over takes 30 us."""

GAP_NBYTES: Final = 64 * 2**10
"""Bytes between two wanted ranges up to which one read over the gap is cheaper than two (a local disk's seek)."""

ARENA_NBYTES: Final = 64 * 2**20
"""Bytes up to which neighbouring tensors share one allocation when they are read into memory.

Dropping all tensors of an arena frees it, so this also bounds what one kept tensor can hold back."""

MAPPED_FROM_NBYTES: Final = 2**20
"""Bytes from which loading tensors maps them; reading fewer is as fast, and mappings are few (65,530)."""

COPIED_BY_ONE_NBYTES: Final = 4 * 2**20
"""Bytes up to which one thread copies a part of a mapped file; starting another costs 0.1 ms."""

MAX_TEXT_LENGTH: Final = 1000
"""Characters of each part of an error's message: names come from files, and may be as long as a header."""

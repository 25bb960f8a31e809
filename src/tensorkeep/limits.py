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

MAX_ARCHIVE_MEMBERS: Final = 1_000_000
"""Members of an archive; the largest checkpoints have some 100,000 storages. Each costs 2 us and 400 bytes."""

MAX_DIRECTORY_NBYTES: Final = 128 * 2**20
"""Bytes of an archive's directory; 134 for each of the most members, where torch writes about 60."""

MAX_INFLATED_NBYTES: Final = 64 * 2**20
"""Bytes of a compressed member; only TorchScript's source code is compressed, which is rarely over 1 MB."""

MAX_INFLATION: Final = 200
"""Times its stored size that a compressed member of more than 1 MiB may have; source code reaches about 20."""

MAX_DEFLATE_RATIO: Final = 1_032
"""Times its stored size that anything deflated can have: one bit for 129 bytes is the best that the method can do."""

MAX_ARRAY_HEADER_NBYTES: Final = 2**16
"""Bytes of the header of a NumPy array; most take 118, and NumPy refuses more than 10,000 unless asked not to."""

MAX_ARRAY_HEADERS_NBYTES: Final = 8 * 2**20
"""Bytes of all headers of one archive of arrays that are longer than usual; parsing them takes 8 s."""

MAX_PICKLE_NBYTES: Final = 2**30
"""Bytes of one pickle without its storages; 80,000 tensors take 13 MB. It is read into memory."""

MAX_PICKLE_OPCODES: Final = 10_000_000
"""Opcodes of one pickle; 80,000 tensors take 2,500,000. Each can make an object of some 64 bytes."""

MAX_GRAPH_NODES: Final = 10_000_000
"""Values that somebody meets who walks through what a pickle holds, shared ones as often as they are met."""

MIN_GRAPH_NODES: Final = 500_000
"""Values that somebody may meet in what any pickle holds, however short it is."""

MAX_GRAPH_NODES_PER_BYTE: Final = 16
"""Values that somebody may meet for each byte of a pickle; without shared parts it is less than one."""

MAX_GRAPH_DEPTH: Final = 200
"""Containers within each other in a pickle; deep configurations have 20. Python's own recursion ends at 1,000."""

ALLOWANCE_PER_BYTE: Final = 4
"""Bytes of memory that copies may take for each byte of a pickle; an honest one copies each of its texts once."""

MIN_ALLOWANCE_NBYTES: Final = 16 * 2**20
"""Bytes of memory that copies may take in a small pickle."""

MAX_STATE_DEPTH: Final = 200
"""Containers in containers of a training state; ten times what training loops make, and far from Python's own end."""

MAX_NAME_LENGTH: Final = 10_000
"""Characters of a module or class that a pickle names."""

MAX_NAMES_LENGTH: Final = 100_000_000
"""Characters of all names of tensors of one file together, as in the longest header of a safetensors file."""

MAX_KEY_NODES: Final = 1_000
"""Values in one key of a dict, shared ones as often as a hash meets them."""

MAX_ALL_KEY_NODES: Final = 5_000_000
"""Values in all nested keys of a file together, a key as often as it is used. A tokenizer may have 500,000 pairs."""

MAX_PICKLED_SETS: Final = 1_000_000
"""Sets in one file of pickles; an empty one takes 216 bytes of memory and one byte of the file."""

MAX_NUMBER_KEYS: Final = 10_000
"""Keys of one dict or set that may be large numbers or tuples of them: n of them, well chosen, cost n * n."""

MAX_COLLIDING_KEYS: Final = 64
"""Keys of one dict or set that may have the same hash; honest ones have none, and n of them cost n * n."""

MAX_PICKLED_INT_NBYTES: Final = 1_024
"""Bytes of one integer in a pickle: 2,466 digits, where Python refuses to print more than 4,300."""

MAX_I64: Final = 2**63 - 1
"""Largest extent, stride or element count that torch and NumPy can hold."""

MAX_NDIM: Final = 64
"""Dimensions of a tensor in a pickle; torch and NumPy have no more."""

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

MAX_EXPANDED_NBYTES: Final = 2**30
"""Bytes of an expanded view, which repeats what it has in its file, up to which it is read or saved as a whole."""

MAX_COPIES: Final = 64
"""Bytes that copies of tensors may take for each byte that they share; in models two or three tensors are tied."""

COPIED_BY_ONE_NBYTES: Final = 4 * 2**20
"""Bytes up to which one thread copies a part of a mapped file; starting another costs 0.1 ms."""

MAX_TEXT_LENGTH: Final = 1000
"""Characters of each part of an error's message: names come from files, and may be as long as a header."""

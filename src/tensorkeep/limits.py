"""Safety bounds and sizes of reads and writes, each with its reason.

A bound keeps hostile or broken files from costing much more time or memory than valid ones. Where callers may raise a
bound, it is the default of a keyword argument with the same name.
"""

from __future__ import annotations

from typing import Final

MAX_HEADER_NBYTES: Final = 100_000_000
"""Bytes of a safetensors header, the same as in the reference reader; about 1,000,000 tensors fit."""

MAX_INDEX_NBYTES: Final = 40_000_000
"""Bytes of the index of a sharded checkpoint; about 400,000 tensors fit. Parsing takes up to 32 times its size."""

MAX_ATTRIBUTE_VALUES: Final = 4_000_000
"""Values in the arrays of one header; a vocabulary of 262,144 has four such arrays. Each takes up to 60 bytes."""

MAX_ATTRIBUTE_DEPTH: Final = 16
"""Nesting depth of arrays in a header; the reference reader of GGUF allows 1."""

MAX_BUNDLE_INDEX_NBYTES: Final = 100_000_000
"""Bytes of the index of a TensorFlow checkpoint, of its blocks when decompressed, and of all keys in them together;
about 1,000,000 tensors fit."""

MAX_COMPARED_NBYTES: Final = 64 * 2**20
"""Bytes without digests read over the network to see whether a single file and the shards beside it are the same."""

MAX_PATCHES: Final = 256
"""Patches through which a checkpoint is read. Each is a file to open, and differences to add to every tensor."""

MAX_DATABASE_KEYS: Final = 1_000_000
"""Keys of a database of zarr arrays: one for each chunk, and one for each array. Each takes 200 bytes and 1 us."""

MAX_DATABASE_NBYTES: Final = 256 * 2**20
"""Bytes of all nodes of such a database, as they are in its files and unpacked; a million keys take about 150 MB."""

MAX_LISTED_NDIM: Final = 1024
"""Dimensions of a tensor that can be listed; NumPy allows 64. Multiplying a million extents would take hours."""

MAX_ARCHIVE_MEMBERS: Final = 1_000_000
"""Members of an archive; the largest checkpoints have about 100,000. Each costs 2 us and 400 bytes."""

MAX_DIRECTORY_NBYTES: Final = 128 * 2**20
"""Bytes of an archive's directory: 134 for each of `MAX_ARCHIVE_MEMBERS`; torch writes about 60 for each."""

MAX_INFLATED_NBYTES: Final = 64 * 2**20
"""Bytes of a compressed member after inflation; only TorchScript's source code is compressed, rarely over 1 MB."""

MAX_INFLATION: Final = 200
"""Largest compression ratio of a member over 1 MiB; source code reaches about 20."""

MAX_DEFLATE_RATIO: Final = 1_032
"""Largest compression ratio that deflate can reach: one bit for 129 bytes."""

MAX_ARRAY_HEADER_NBYTES: Final = 2**16
"""Bytes of the header of a NumPy array; most have 118, and NumPy refuses more than 10,000 by default."""

MAX_ARRAY_HEADERS_NBYTES: Final = 8 * 2**20
"""Bytes of all unusually long array headers in one archive together; parsing them takes 8 s."""

MAX_PROTOBUF_FIELDS: Final = 10_000_000
"""Fields of all messages of a file that are walked; 20,000 small tensors in a graph have 300,000. Each costs 1 us."""

MAX_XML_ELEMENTS: Final = 2_000_000
"""Elements of an XML file; a model of 10,000 layers has 150,000. Each costs 3 us."""

MAX_XML_DEPTH: Final = 100
"""Elements of an XML file within each other; each graph in a graph takes three."""

MAX_PROTOBUF_DEPTH: Final = 100
"""Messages within each other, as in the readers of Google's library."""
MAX_MESSAGE_VALUES: Final = 2_000_000
"""Values in a MessagePack file, containers and arrays included; 80,000 tensors take 160,000. So many take 4 s."""

MAX_MESSAGE_TEXTS_NBYTES: Final = 100_000_000
"""Bytes of all text in a MessagePack file, keys included, and of all bytes that are not in arrays."""

MAX_ARROW_MESSAGES: Final = 200_000
"""Batches and dictionaries of an Arrow file: each is parsed, in 20 us or more."""

MAX_PADDLE_TENSORS: Final = 200_000
"""Tensors in one of Paddle's streams: each must be parsed to find the next; models have a few thousand."""

MAX_PICKLE_NBYTES: Final = 2**30
"""Bytes of one pickle without its storages; 80,000 tensors take 13 MB. The pickle is read into memory."""

MAX_PICKLE_OPCODES: Final = 10_000_000
"""Opcodes of one pickle; 80,000 tensors take 2,500,000. Each can create an object of about 64 bytes."""

MAX_GRAPH_NODES: Final = 10_000_000
"""Values visited in a walk through the content of a pickle; a shared value counts each time it is reached."""

MIN_GRAPH_NODES: Final = 500_000
"""Values that may be visited in any pickle, however short."""

MAX_GRAPH_NODES_PER_BYTE: Final = 16
"""Values that may be visited per byte of a pickle; without shared values it is less than one."""

MAX_GRAPH_DEPTH: Final = 200
"""Nesting depth of containers in a pickle; deep configurations reach 20. Python's recursion limit is 1,000."""

ALLOWANCE_PER_BYTE: Final = 4
"""Bytes that copies may take per byte of a pickle; a valid one copies each of its strings once."""

MIN_ALLOWANCE_NBYTES: Final = 16 * 2**20
"""Bytes that copies may take in any pickle, however short."""

MAX_STATE_DEPTH: Final = 200
"""Nesting depth of a training state; training loops reach 20, and Python's recursion limit is 1,000."""

MAX_NAME_LENGTH: Final = 10_000
"""Characters of a module or class name in a pickle."""

MAX_NAMES_LENGTH: Final = 100_000_000
"""Characters of all tensor names in one file together, as in the longest safetensors header."""

MAX_KEY_NODES: Final = 1_000
"""Values in one dict key; a shared value counts each time the hash visits it."""

MAX_ALL_KEY_NODES: Final = 5_000_000
"""Values in all nested dict keys of a file together, counting every use. A tokenizer may have 500,000 pairs."""

MAX_PICKLED_SETS: Final = 1_000_000
"""Sets in one pickle file; an empty set takes 216 bytes of memory and one byte of the file."""

MAX_NUMBER_KEYS: Final = 10_000
"""Keys of one dict or set that are large numbers or tuples of them: n well-chosen ones cost n * n."""

MAX_COLLIDING_KEYS: Final = 64
"""Keys of one dict or set with the same hash: normally none, and n of them cost n * n."""

MAX_PICKLED_INT_NBYTES: Final = 1_024
"""Bytes of one integer in a pickle, or 2,466 digits; Python refuses to print more than 4,300."""

MAX_I64: Final = 2**63 - 1
"""Largest extent, stride or element count that torch and NumPy can hold."""

MAX_NDIM: Final = 64
"""Dimensions of a tensor in a pickle; torch and NumPy allow no more."""

MAX_U64: Final = 2**64 - 1
"""Largest extent, element count or bit count; the reference computes them as unsigned 64-bit integers."""

READ_NBYTES: Final = 16 * 2**20
"""Bytes of one of several parallel reads: long enough to stream, short enough to share out."""

PIECE_NBYTES: Final = 4 * 2**20
"""Bytes of a mapped file that are processed at a time, such as for a digest: they stay in the CPU caches."""

COPIED_PIECE_NBYTES: Final = 2**19
"""The same for a file that is read: more than this leaves the L2 cache and is slower."""

PACK_NBYTES: Final = 2**20
"""Bytes copied at a time when a tensor cannot be written in place (not contiguous, or on a device).

About ten such pieces are in memory at once.
"""

WRITE_NBYTES: Final = 8 * 2**20
"""Bytes gathered for one write: long enough to stream, short enough to react to an interrupt."""

WRITEBACK_NBYTES: Final = 32 * 2**20
"""Bytes after which the disk begins to store what was written, if the end waits for it: it is busy from then on."""

HASHED_APART_NBYTES: Final = 2**20
"""Bytes from which a second thread computes the digest while a tensor is written; the handover takes 30 us."""

GAP_NBYTES: Final = 64 * 2**10
"""Bytes between two ranges up to which one read across the gap is cheaper than two (a seek of a local disk)."""

ARENA_NBYTES: Final = 64 * 2**20
"""Bytes up to which neighboring tensors share one allocation when they are read into memory.

An arena is freed with the last of its tensors, so this also bounds the memory that one small tensor keeps alive."""

MAPPED_FROM_NBYTES: Final = 2**20
"""Bytes from which tensors are mapped; reading fewer is as fast, and a process has only 65,530 mappings."""

MAX_EXPANDED_NBYTES: Final = 2**30
"""Bytes of an expanded (stride 0) view up to which it is read or saved as a whole."""

MAX_COPIES: Final = 64
"""Bytes that copies of tensors may take per byte they share; models tie two or three tensors."""

COPIED_BY_ONE_NBYTES: Final = 4 * 2**20
"""Bytes of a mapped file up to which one thread copies them; starting a second one costs 0.1 ms."""

MAX_TEXT_LENGTH: Final = 1000
"""Characters of each part of an error message: names come from files, and may be as long as a header."""

MAX_SIGNATURE_NBYTES: Final = 16 * 2**20
"""Bytes of a signature; about 50,000 files fit."""

MAX_SIGNATURE_NODES: Final = 1_000_000
"""Values in the JSON that was signed; 50,000 files need half of that. Each takes about 100 bytes of memory."""

MAX_BUNDLE_NODES: Final = 10_000
"""Values in the JSON around it; proofs of transparency logs have a few hundred."""

MAX_SIGNATURES: Final = 16
"""Signatures of one directory that are all read; if there are more, only the usual names count."""

MAX_CERTIFICATES: Final = 6
"""Certificates in a signature; usually two or three. Hostile ones can be combined to hundreds of chains."""

MAX_KEY_NBYTES: Final = 64 * 2**10
"""Bytes of a key or a policy; a key has a few hundred."""

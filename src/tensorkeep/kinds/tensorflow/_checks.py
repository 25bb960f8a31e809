"""The CRC-32C of each tensor, and of each part of a tensor that was saved in parts."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from tensorkeep.digests import CRC32C
from tensorkeep.formats.tensorflow import BundledTensor, string_crc
from tensorkeep.kinds.base import Check, Checks
from tensorkeep.kinds.tensorflow._files import BundleFiles


def checks_of(
    files: BundleFiles, tensors: dict[str, BundledTensor], others: dict[str, BundledTensor], n_tensors: int
) -> Checks:
    """Return the checks of tensors, and of other values such as strings, which do not count as tensors."""
    checks = [*_checks(files, tensors, counts=True), *_checks(files, others, counts=False)]
    return Checks(checks, files.faults, n_files=len(files.names), n_tensors=n_tensors)


def _checks(files: BundleFiles, tensors: dict[str, BundledTensor], *, counts: bool) -> Iterator[Check]:
    for name, tensor in tensors.items():
        for place, part in enumerate(tensor.parts):
            source = files.shards.get(part.shard)
            if source is None or part.stop > source.nbytes:
                continue  # there is a finding about the file
            algorithm = CRC32C
            if tensor.is_string:
                algorithm = string_crc(prod(part.shape), is_big_endian=files.bundle.header.is_big_endian)
            yield Check(
                files.names[part.shard],
                name,
                source,
                part.span,
                algorithm,
                part.crc.to_bytes(4, "big"),
                n_tensors=int(counts and place == 0),
            )

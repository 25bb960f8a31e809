"""What can be verified, and what is known to be wrong before any data is read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from tensorkeep.digests import Algorithm
from tensorkeep.errors import TensorNotFoundError
from tensorkeep.kinds.base._findings import Finding
from tensorkeep.tensors import chosen_names
from tensorkeep.transport import ByteRange, ByteSource


class Check(msgspec.Struct, frozen=True):
    """A range of bytes with a known checksum.

    Attributes:
        file: Name of the file, for findings.
        tensor: Name of the tensor, the first if several share the bytes; None for a whole file.
        source: The source of the bytes, or the path of a file to open for this check only.
        span: Half-open byte range in the source.
        algorithm: The checksum algorithm.
        expected: The expected checksum.
        n_tensors: Number of tensors that this checks.
        is_recorded: Whether the checkpoint records the checksum itself; somebody else may keep it.
    """

    file: str
    tensor: str | None
    source: ByteSource | str
    span: ByteRange
    algorithm: Algorithm
    expected: bytes
    n_tensors: int = 1
    is_recorded: bool = True


class Checks(msgspec.Struct, frozen=True):
    """Everything that can be checked for some tensors or all.

    Attributes:
        checks: Byte ranges with a checksum, in any order.
        findings: What is already known to be wrong.
        n_unprotected: Number of tensors without a checksum.
        n_checked: Number of tensors already checked on opening, because their elements were part of what was read.
        n_files: Number of files that hold tensors.
        n_tensors: Number of all tensors in them, whether or not they were asked for.
        n_others: Number of other files that are checked too.
        signers: Who signed this, as far as a policy trusts them: ids of keys, and identities.
        pickles: Names of parts that are pickles, in a format that is not made of pickles itself.
    """

    checks: Sequence[Check] = ()
    findings: Sequence[Finding] = ()
    n_unprotected: int = 0
    n_checked: int = 0
    n_files: int = 0
    n_tensors: int = 0
    n_others: int = 0
    signers: tuple[str, ...] = ()
    pickles: tuple[str, ...] = ()


def names_to_check(names: Iterable[str], known: Iterable[str], path: str) -> list[str]:
    """Resolve names and shell patterns to known names."""
    known = dict.fromkeys(known)
    found: dict[str, None] = {}
    for name in [names] if isinstance(names, str) else names:
        matches = [name] if name in known else chosen_names(known, [name])
        if not matches:
            raise TensorNotFoundError(f"the checkpoint has no tensor {name}", path=path, tensor=name)
        found |= dict.fromkeys(matches)
    return list(found)


def combined(of_files: Mapping[str, Checks]) -> Checks:
    """Merge the checks of several files, keyed by file name."""
    replace = msgspec.structs.replace
    return Checks(
        [replace(check, file=file) for file, found in of_files.items() for check in found.checks],
        [replace(finding, shard=file) for file, found in of_files.items() for finding in found.findings],
        n_unprotected=sum(found.n_unprotected for found in of_files.values()),
        n_checked=sum(found.n_checked for found in of_files.values()),
        n_files=sum(found.n_files for found in of_files.values()),
        n_tensors=sum(found.n_tensors for found in of_files.values()),
        n_others=sum(found.n_others for found in of_files.values()),
    )

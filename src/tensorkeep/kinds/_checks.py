"""What of something that is open can be checked, and what is known to be wrong before a byte of data is read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from tensorkeep.digests import Algorithm
from tensorkeep.errors import TensorNotFoundError
from tensorkeep.kinds._findings import Finding
from tensorkeep.tensors import chosen_names
from tensorkeep.transport import ByteRange, ByteSource


class Check(msgspec.Struct, frozen=True):
    """Bytes whose checksum is known.

    Attributes:
        file: Name of the file, for findings.
        tensor: Name of the tensor whose bytes they are, the first where several share them; None for a whole file.
        source: Where they are; or the path of a file that is opened for this check only.
        span: Which bytes of the source, half-open.
        algorithm: What they are summed with.
        expected: The checksum that they should have.
        n_tensors: Tensors that are checked by this.
    """

    file: str
    tensor: str | None
    source: ByteSource | str
    span: ByteRange
    algorithm: Algorithm
    expected: bytes
    n_tensors: int = 1


class Checks(msgspec.Struct, frozen=True):
    """All that can be checked of some tensors, or of all.

    Attributes:
        checks: Bytes that have a checksum, in any order.
        findings: What is wrong already.
        n_unprotected: Tensors whose bytes have no checksum.
        n_checked: Tensors that were checked when the files were opened, since their elements stand in what was read.
        n_files: Files that hold tensors.
        n_tensors: Tensors in them, also those that were not asked for.
        n_others: Other files that are checked with them.
    """

    checks: Sequence[Check] = ()
    findings: Sequence[Finding] = ()
    n_unprotected: int = 0
    n_checked: int = 0
    n_files: int = 0
    n_tensors: int = 0
    n_others: int = 0


def names_to_check(names: Iterable[str], known: Iterable[str], path: str) -> list[str]:
    """Return the names that are meant: each is one of those that are known, or a shell pattern for some."""
    known = dict.fromkeys(known)
    found: dict[str, None] = {}
    for name in [names] if isinstance(names, str) else names:
        matches = [name] if name in known else chosen_names(known, [name])
        if not matches:
            raise TensorNotFoundError(f"the checkpoint has no tensor {name}", path=path, tensor=name)
        found |= dict.fromkeys(matches)
    return list(found)


def combined(of_files: Mapping[str, Checks]) -> Checks:
    """Return the checks of several files as one, each under the name that its file has among them."""
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

"""What a policy demands of an open: signatures first, and nothing is opened that they do not prove.

Safetensors files are proven by their headers, and their tensors when they are read. Files of other formats have no
digests that a signature covers, so they are read whole.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping

import msgspec

from tensorkeep.errors import SourceMissingError, TrustError, UnsupportedError
from tensorkeep.kinds import Found, Opened, OpenOptions, Place
from tensorkeep.signing import files_below, has_link
from tensorkeep.transport import is_directory, is_remote, join, open_source, prove_here, split
from tensorkeep.trust import Policy, Proof, Rule, is_accounted_for, prove

_Identity = tuple[int, ...]


class Demand(msgspec.Struct, frozen=True):
    """What a policy demands of one open.

    Attributes:
        rule: The rule of the policy for the path.
        options: How to open.
        proof: What must be read whole; None if nothing must be.
        names: Names of the files that were read whole already; None if that was a whole directory.
        read: The path of each file that was read whole, and which file that was.
    """

    rule: Rule
    options: OpenOptions
    proof: Proof | None = None
    names: tuple[str, ...] | None = None
    read: Mapping[str, _Identity] = {}

    def check(self, opened: Opened) -> Opened:
        """Refuse what was opened if it has pickles, or files that are not proven; it is closed then."""
        try:
            self.rule.refuse_pickled_parts(opened.path, opened.pickles)
            if self.proof is not None:
                self._check_files(opened, self.proof)
        except BaseException:
            opened.close()
            raise
        return opened

    def _check_files(self, opened: Opened, proof: Proof) -> None:
        for name, source in opened.sources.items():
            if self.names is None:
                proof.file(name)
            elif name not in self.names:
                proof.check_whole(name, source)
            prove_here(source)
        _refuse_changed(self.read)


def demand_of(policy: Policy, place: Place, found: Found, options: OpenOptions) -> Demand:
    """Return what a policy demands of what is at a place, as far as it is fulfilled before it is opened."""
    if place.path is None:
        raise UnsupportedError("bytes have no signature beside them", hint="Give the path of a file, or no trust=")
    if not options.check:
        raise UnsupportedError("`check=False` and `trust` exclude each other")
    rule = policy.rule_for(place.path)
    rule.refuse_format(found.format, place.path, has_digests=found.kind.proves_reads)
    proof = prove(rule, place.path)
    if found.kind.proves_reads:
        return Demand(rule, msgspec.structs.replace(options, proof=proof, verify=options.verify or rule.digests))
    if proof is None:
        return Demand(rule, options)
    name = None if is_directory(place.path) else split(place.path)[1]
    if name is not None and not is_remote(place.path) and not os.path.isfile(place.path):
        name = None  # what the names of several files begin with
    names = None if name is None else _that_belong_to(name, found, proof.root)
    read = dict(_check_files(proof, proof.files if names is None else names, rule.links))
    if names is None:
        _refuse_unsigned(proof)
    return Demand(rule, options, proof, names, read)


def _that_belong_to(name: str, found: Found, root: str) -> tuple[str, ...]:
    """Return the name of a file and those beside it that are read with it, though no tensors may be in them."""
    files = found.files()
    beside = files.names if files is not None and files.directory == root else ()
    return tuple(dict.fromkeys((name, *beside)))


def _check_files(proof: Proof, names: Iterable[str], links: bool) -> Iterator[tuple[str, _Identity]]:
    """Read files whole; yield the path of each, and which file that was."""
    for name in names:
        path = join(proof.root, name)
        if not links and has_link(proof.root, name):
            raise TrustError("a symbolic link is in the place of a signed file", path=path)
        before = _identity_of(path)
        try:
            proof.check_whole(name, open_source(path))
        except SourceMissingError:
            raise TrustError(f"`{name}` was signed, and is missing", path=proof.root) from None
        yield path, before


def _identity_of(path: str) -> _Identity:
    """Return what changes when a file is written or another takes its place, even for a moment; of a URL nothing."""
    try:
        status = os.stat(path)
    except OSError:
        return ()
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def _refuse_changed(read: Mapping[str, _Identity]) -> None:
    for path, identity in read.items():
        if _identity_of(path) != identity:
            raise TrustError("the file changed while it was opened", path=path, hint="Open it again")


def _refuse_unsigned(proof: Proof) -> None:
    """Refuse a directory with files that nobody signed: a format in many files could read them."""
    for name in files_below(proof.root):
        if not is_accounted_for(proof, name):
            proof.file(name)

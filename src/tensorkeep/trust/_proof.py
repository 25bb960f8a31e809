"""`Proof`: what trusted signatures say about the files of one directory. Pure."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from tensorkeep.digests import BLAKE2B, BLAKE3, SHA256, Algorithm
from tensorkeep.errors import TrustError
from tensorkeep.signing import SignedFile
from tensorkeep.texts import listed
from tensorkeep.transport import ByteRange, ByteSource, MemorySource, is_remote, prove_here, sum_of

ALGORITHMS: Mapping[str, Algorithm] = {"sha256": SHA256, "blake2b": BLAKE2B, "blake3": BLAKE3}
"""Names in signatures to algorithms."""


class Proof(msgspec.Struct, frozen=True):
    """What was signed by enough of those whom a policy trusts.

    Attributes:
        root: The directory or URL that the names of files are relative to.
        signers: Who signed: ids of keys, and identities.
        files: Relative name of each file to what was signed of it.
        ignored: Names of files and directories that every signer left out.
        needs_digests: Whether each tensor must have a digest of its own.
    """

    root: str
    signers: tuple[str, ...]
    files: Mapping[str, SignedFile]
    ignored: tuple[str, ...] = ()
    needs_digests: bool = False

    def file(self, name: str) -> SignedFile:
        """Return what was signed of a file.

        Args:
            name: Its relative name.

        Raises:
            TrustError: If nobody signed it.
        """
        if name not in self.files:
            raise TrustError(
                f"`{name}` is not signed by anybody the policy trusts",
                path=self.root,
                expected=listed(self.files, 5),
                found=f"`{name}`",
            )
        return self.files[name]

    def refuse_missing(self, name: str) -> None:
        """Refuse that a file is missing or unreadable if it was signed.

        Args:
            name: Its relative name.

        Raises:
            TrustError: If it was signed.
        """
        if name in self.files:
            raise TrustError(f"`{name}` was signed, and is missing or cannot be read", path=self.root)

    def check_content(self, name: str, content: bytes) -> None:
        """Refuse the content of a small file unless it is what was signed.

        Args:
            name: Its relative name.
            content: All its bytes.

        Raises:
            TrustError: If it is not.
        """
        self._compare(name, MemorySource(content, name))

    def check_whole(self, name: str, source: ByteSource) -> None:
        """Read a whole file, and refuse it unless it is what was signed.

        Args:
            name: Its relative name.
            source: Its bytes, on this machine: a server could send different ones next time.

        Raises:
            TrustError: If it is not, if it is on a server, or if the policy demands a digest for each tensor.
        """
        if self.needs_digests:
            raise TrustError(
                f"the tensors of `{name}` have no digests of their own, which the policy demands",
                path=self.root,
                hint="Save or reshard it with tensorkeep, and sign that",
            )
        if is_remote(source.name):
            raise TrustError(
                f"`{name}` can only be proven whole, because its tensors have no signed digests",
                path=self.root,
                hint="Fetch it first: `tensorkeep fetch URL DIRECTORY --trust KEY` proves it on the way",
            )
        self._compare(name, source)
        prove_here(source)

    def check_tensors(
        self, name: str, source: ByteSource, header_digest: bytes, *, is_sealed: bool, is_recorded: bool
    ) -> None:
        """Refuse a safetensors file unless it is what was signed: its header if that has digests, else the whole.

        Args:
            name: Its relative name.
            source: Its bytes.
            header_digest: BLAKE3 of everything before the data.
            is_sealed: Whether the header has a digest of each tensor, so that it proves them.
            is_recorded: Whether a signed index has the digest of the header, which the caller compares.

        Raises:
            TrustError: If it is not what was signed, or cannot be proven.
        """
        is_signed = name in self.files and self.check_header(name, source.nbytes, header_digest)
        if not is_sealed or not (is_signed or is_recorded):
            self.check_whole(name, source)

    def check_header(self, name: str, nbytes: int, blake3: bytes) -> bool:
        """Refuse a header unless it is what was signed.

        Args:
            name: Relative name of its file.
            nbytes: Size of the file in bytes.
            blake3: BLAKE3 of everything before the data.

        Returns:
            Whether the header was signed. If not, the file must be proven in another way.

        Raises:
            TrustError: If another header was signed, or nobody signed the file.
        """
        header = self.file(name).header
        if header is None:
            return False
        if (header.nbytes, header.blake3) != (nbytes, blake3.hex()):
            raise TrustError(
                f"`{name}` is not the file that was signed",
                path=self.root,
                expected=f"{header.nbytes:,} bytes, header digest {header.blake3[:16]}…",
                found=f"{nbytes:,} bytes, {blake3.hex()[:16]}…",
            )
        return True

    def _compare(self, name: str, source: ByteSource) -> None:
        signed = self.file(name)
        algorithm = ALGORITHMS[signed.algorithm]
        found = sum_of(source, ByteRange(0, source.nbytes), algorithm, parallel=True)
        if found != signed.digest:
            raise TrustError(
                f"`{name}` is not the file that was signed",
                path=self.root,
                expected=f"{algorithm.name} {algorithm.shown(signed.digest)}",
                found=algorithm.shown(found),
            )

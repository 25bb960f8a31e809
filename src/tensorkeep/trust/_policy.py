"""`Policy`: whose signatures count, for which paths and URLs.

A policy file is TOML:

    [[rules]]
    paths = ["hf://my-org/**", "/srv/models/**"]    # patterns; the first rule that matches decides
    keys = ["keys/release.pub"]                     # relative to the policy file
    identities = [{ identity = "release@example.com", issuer = "https://accounts.example.com" }]
    authorities = [{ certificate = "keys/ca.pem", subject = "*@example.com" }]
    signatures = 1           # how many of these keys, identities and authorities must have signed
    digests = false          # whether each tensor must have a digest of its own
    pickles = false          # whether pickles may be opened, also in other formats
    formats = ["safetensors", "gguf"]
    links = false            # whether signed files may be symbolic links, as in the cache of the Hub
    partial = false          # whether `verify` accepts that signed files are missing
    additions = false        # whether `verify` accepts files that nobody signed

No policy is read from a checkpoint's directory: anyone who can change the checkpoint could change the policy too.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Sequence
from typing import Any, Final, Literal

import msgspec

from tensorkeep.errors import FormatError, TrustError, as_transport_error
from tensorkeep.layout import stem_of_index
from tensorkeep.limits import MAX_KEY_NBYTES
from tensorkeep.signing import PublicKey
from tensorkeep.transport import is_remote, refuse_url
from tensorkeep.trust._authorities import Authority
from tensorkeep.trust._patterns import EVERYTHING, absolute, is_matched, place_of

_LOCAL: Final = "Keep policies in local files"
_PICKLED: Final = frozenset({"pickles", "distributed"})
"""Formats that have pickles in them."""


class Identity(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A person or workflow that signs without a key.

    Attributes:
        identity: The name in the certificate, such as an email address or the URL of a workflow.
        issuer: The URL of the identity provider.
    """

    identity: str
    issuer: str


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    """What a policy demands of some paths and URLs.

    Attributes:
        paths: Patterns of absolute paths and URLs; `*` does not cross `/`, `**` does.
        keys: Keys whose signatures count.
        identities: Identities whose signatures count.
        authorities: Authorities; all whom one of them certifies count as one signer.
        signatures: How many different keys, identities and authorities must have signed each file; 0 if none.
        digests: Whether each tensor must have a digest of its own.
        pickles: Whether formats made of pickles, and files with pickles in them, may be opened.
        formats: Names of formats that may be opened, such as `"safetensors"`; None for all.
        links: Whether signed files may be symbolic links.
        partial: Whether `verify` accepts that signed files are missing.
        additions: Whether `verify` accepts files that nobody signed.
    """

    paths: tuple[str, ...] = (EVERYTHING,)
    keys: tuple[PublicKey, ...] = ()
    identities: tuple[Identity, ...] = ()
    authorities: tuple[Authority, ...] = ()
    signatures: int = 1
    digests: bool = False
    pickles: bool = False
    formats: tuple[str, ...] | None = None
    links: bool = False
    partial: bool = False
    additions: bool = False

    def __post_init__(self) -> None:
        n_signers = sum(len(set(signers)) for signers in (self.keys, self.identities, self.authorities))
        if not 0 <= self.signatures <= n_signers:
            raise FormatError(
                "a rule of the policy demands more signatures than it names signers",
                expected="signatures from 0 to the number of keys, identities and authorities",
                found=f"{self.signatures} of {n_signers}",
            )

    def refuse_format(self, name: str, path: str | None, *, has_digests: bool = True) -> None:
        """Refuse a format.

        Args:
            name: Its name.
            path: The file or directory in this format.
            has_digests: Whether its tensors can have digests of their own.

        Raises:
            TrustError: If the rule does not allow it.
        """
        if self.formats is not None and name not in self.formats:
            raise TrustError(
                "the policy does not allow this format",
                path=path,
                expected=" or ".join(self.formats) or "none",
                found=name,
            )
        if self.digests and not has_digests:
            raise TrustError("the policy demands a digest for each tensor", path=path, found=name)
        if name in _PICKLED:
            self.refuse_pickles(path, name)

    def refuse_pickles(self, path: str | None, found: str) -> None:
        """Refuse pickles.

        Args:
            path: The file or directory that has some.
            found: What it is.

        Raises:
            TrustError: If the rule does not allow them.
        """
        if not self.pickles:
            raise TrustError(
                "the policy does not allow pickles",
                path=path,
                found=found,
                hint="Convert it to safetensors, or set pickles = true in the policy",
            )

    def refuse_pickled_parts(self, path: str | None, names: Sequence[str]) -> None:
        """Refuse pickles in a format that is not made of pickles.

        Args:
            path: The file or directory.
            names: Names of its parts that are pickles.

        Raises:
            TrustError: If there are some, and the rule does not allow them.
        """
        if names:
            self.refuse_pickles(path, f"a pickle, {names[0]!r:.200}")


class Policy(msgspec.Struct, frozen=True):
    """Whose signatures count, for which paths and URLs; the first rule that matches decides.

    Attributes:
        rules: The rules.
    """

    rules: tuple[Rule, ...]

    @classmethod
    def of(cls, value: Policy | str | os.PathLike[str], *, checkpoint: str | None = None) -> Policy:
        """Return a policy, or read one.

        Args:
            value: A policy, the path of a policy file (`.toml`), or the path of a public key, which must then have
                signed everything.
            checkpoint: The path or URL of what is to be trusted: no policy is read from its directory.

        Raises:
            TrustError: If the policy or a key that it names is in the directory of the checkpoint.
            SourceMissingError: If there is no such file.
            FormatError: If it is neither a policy nor a public key.
            MissingDependencyError: If `cryptography` is not installed.
        """
        if isinstance(value, Policy):
            return value
        path = os.fsdecode(value)
        _refuse_inside(path, checkpoint)
        return _read(path, checkpoint) if path.endswith(".toml") else cls((Rule(keys=(PublicKey.read(path),)),))

    def rule_for(self, path: str) -> Rule:
        """Return the rule that decides about a path or URL.

        Args:
            path: The path or URL.

        Raises:
            TrustError: If no rule does.
        """
        place = place_of(path)
        for rule in self.rules:
            if any(is_matched(place, pattern) for pattern in rule.paths):
                return rule
        raise TrustError("no rule of the policy matches this path or URL", path=path, found=place)


Trust = Policy | str | os.PathLike[str] | Literal[False]
"""What the argument `trust` may be; False is no policy, even if the environment names one."""


def _refuse_inside(policy: str, checkpoint: str | None) -> None:
    """Refuse a policy or key that came with the checkpoint at a path."""
    refuse_url(policy, hint=_LOCAL)
    if checkpoint is None or is_remote(checkpoint):
        return
    place, folder = os.path.realpath(checkpoint), os.path.dirname(os.path.realpath(policy))
    parent, name = os.path.split(place)
    if stem_of_index(name):
        place = parent
    is_below = os.path.join(folder, "").startswith(os.path.join(place, ""))
    if is_below if os.path.isdir(place) else folder == parent:
        raise TrustError(
            "a policy or key is never read from the checkpoint's own directory",
            path=policy,
            hint="Keep it elsewhere: anyone who can change the checkpoint could change it too",
        )


class _Authority(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An authority as text."""

    certificate: str
    subject: str | None = None
    expired: bool = False


class _Rule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A rule as text."""

    paths: tuple[str, ...] = (EVERYTHING,)
    keys: tuple[str, ...] = ()
    identities: tuple[Identity, ...] = ()
    authorities: tuple[_Authority, ...] = ()
    signatures: int = 1
    digests: bool = False
    pickles: bool = False
    formats: tuple[str, ...] | None = None
    links: bool = False
    partial: bool = False
    additions: bool = False


class _Document(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    rules: tuple[_Rule, ...]


def _read(path: str, checkpoint: str | None) -> Policy:
    with as_transport_error("could not read the policy", path), open(path, "rb") as file:
        text = file.read(MAX_KEY_NBYTES + 1)
    if len(text) > MAX_KEY_NBYTES:
        raise FormatError("the policy is too large", path=path, expected=f"at most {MAX_KEY_NBYTES:,} bytes")
    folder = os.path.dirname(os.path.realpath(path))
    try:
        document = msgspec.convert(tomllib.loads(text.decode()), _Document)
        return Policy(tuple(_rule_of(rule, folder, checkpoint) for rule in document.rules))
    except FormatError as error:
        raise error.with_fields(path=error.path or path) from None
    except TrustError:
        raise
    except (ValueError, RecursionError) as error:  # of TOML, UTF-8 and msgspec
        raise FormatError("not a policy", path=path, found=str(error)) from None


def _rule_of(rule: _Rule, folder: str, checkpoint: str | None) -> Rule:
    members: dict[str, Any] = {name: getattr(rule, name) for name in _Rule.__struct_fields__}
    members["paths"] = tuple(absolute(pattern, folder) for pattern in rule.paths)
    members["keys"] = tuple(PublicKey.read(_named(key, folder, checkpoint)) for key in rule.keys)
    members["authorities"] = tuple(
        Authority.read(_named(each.certificate, folder, checkpoint), subject=each.subject, expired=each.expired)
        for each in rule.authorities
    )
    return Rule(**members)


def _named(file: str, folder: str, checkpoint: str | None) -> str:
    """Return the path of a file that a policy in a folder names."""
    path = os.path.join(folder, os.path.expanduser(file))
    _refuse_inside(path, checkpoint)
    return path

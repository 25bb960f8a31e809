"""Signatures without keys: who made them, as the `sigstore` package and its transparency log prove it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from tensorkeep.errors import TrustError, importing
from tensorkeep.signing import Bundle
from tensorkeep.texts import listed

if TYPE_CHECKING:
    from sigstore.verify import Verifier

    from tensorkeep.trust._policy import Identity


def signer_of(bundle: Bundle, identities: Sequence[Identity], name: str) -> str:
    """Return which of some identities made a signature; TrustError if none did."""
    if not identities:
        raise TrustError(f"`{name}` is signed by an identity, and the policy trusts only keys")
    with importing(sigstore="'tensorkeep[keyless]'"):
        from sigstore.errors import Error
        from sigstore.models import Bundle as SigstoreBundle
        from sigstore.models import InvalidBundle
        from sigstore.verify import policy as policies
    try:
        parsed: Any = SigstoreBundle.from_json(bundle.text)
    except (InvalidBundle, ValueError, TypeError, KeyError, AttributeError) as error:
        raise TrustError(f"`{name}` is not a signature of an identity", found=str(error)) from None
    faults = []
    for one in identities:
        try:
            _, payload = verifier().verify_dsse(parsed, policies.Identity(identity=one.identity, issuer=one.issuer))
        except (Error, ValueError) as error:
            faults.append(str(error))
            continue
        if payload == bundle.payload:
            return one.identity
    raise TrustError(f"the signature in `{name}` is not by anybody the policy trusts", found=listed(faults, 3, "; "))


@cache
def verifier() -> Verifier:
    """Return what checks certificates and the log, with the roots of trust of the last time if offline."""
    from sigstore.errors import Error
    from sigstore.verify import Verifier

    try:
        return Verifier.production()
    except (Error, OSError):
        return Verifier.production(offline=True)

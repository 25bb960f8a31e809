"""`sign_keyless`: sign by an identity, without a key to keep, through the `sigstore` package."""

from __future__ import annotations

import os
from collections.abc import Callable

from tensorkeep.errors import TransportError, importing
from tensorkeep.signing._sign import Signed, destination_for, statement_of, target_of, write_signature


def sign_keyless(
    path: str | os.PathLike[str],
    *,
    token: str | None = None,
    output: str | os.PathLike[str] | None = None,
    links: bool = False,
    rehash: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> Signed:
    """Sign a directory or a file with an identity instead of a key.

    Needs a network: an identity provider confirms who you are (in a browser, or with a token from the CI system),
    Sigstore issues a certificate for ten minutes, and its public log keeps your identity and the signature forever.

    Args:
        path: A directory or a file; see `sign`.
        token: An OpenID Connect token. With None, the CI system is asked for one, or a browser opens.
        output: Where the signature goes; see `sign`.
        links: Whether to follow symbolic links to files.
        rehash: Whether to read all files; see `sign`.
        progress: Called with the bytes read so far and the total, by one thread at a time.

    Returns:
        Where the signature is, and what it covers.

    Raises:
        SourceMissingError: If there is nothing at the path.
        IntegrityError: If an index or a header does not match its digest.
        UnsupportedError: If the path is a URL or an index, a file's name is not portable, or there are links.
        DestinationExistsError: If `output` exists and is not a signature.
        MissingDependencyError: If `sigstore` is not installed.
        TransportError: If a service cannot be reached or refuses, a file cannot be read, or the signature cannot be
            written.
    """
    target = target_of(path)
    with importing(sigstore="'tensorkeep[keyless]'"):
        from sigstore.dsse import Statement
        from sigstore.models import ClientTrustConfig
        from sigstore.oidc import IdentityToken, Issuer, detect_credential
        from sigstore.sign import SigningContext
    destination = destination_for(target, None, output)
    found, payload = statement_of(target, destination, links=links, rehash=rehash, progress=progress)
    given = token
    try:
        config = ClientTrustConfig.production()
        given = token or detect_credential()
        identity = IdentityToken(given) if given else Issuer(config.signing_config.get_oidc_url()).identity_token()
        with SigningContext.from_trust_config(config).signer(identity) as signer:
            text = signer.sign_dsse(Statement(payload)).to_json().encode()
    except Exception as error:  # noqa: BLE001 - its errors have no base in common
        raise TransportError(
            "could not sign with an identity",
            path=target,
            found=f"{type(error).__name__}: {error}".replace(given or "\0", "…"),
            hint="This needs a network, and a browser or CI system to prove who signs; `--key` needs neither",
        ) from None
    write_signature(destination, text)
    return Signed(destination, identity.identity, len(found.files), found.n_recorded)
